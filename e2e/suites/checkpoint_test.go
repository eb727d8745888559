// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
)

// A checkpoint nobody can read is kept aside and reported, running containers
// keep what they have, and new ones start.
func testCheckpoint(t *testing.T, w *world) {
	ctx, u := w.user(t, "checkpoint", 2*time.Minute)
	old := pod("old").App("main", workload.Ask{Number: 1, Memory: 700}, "info", "env", "forever").Build()
	if err := u.Create(ctx, old); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, "old"); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.StopComponent(sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.cluster.Dir(), "device-plugin", "checkpoint.json")
	if err := os.WriteFile(file, []byte(`{"version":1,"che`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.StartComponent(sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.WaitReady(ctx, sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	if err := w.waitEvent(ctx, "checkpoint.json"); err != nil {
		t.Errorf("no event tells of the broken checkpoint: %v", err)
	}
	if kept, err := filepath.Glob(file + ".broken*"); err != nil || len(kept) == 0 {
		t.Errorf("the broken checkpoint was not kept aside: %v", err)
	}
	w.stillWorks(ctx, t, u)
	p, err := u.WaitRunning(ctx, "old")
	if err != nil {
		t.Fatal(err)
	}
	if restarts(p) != 0 {
		t.Errorf("the running container was restarted %d times", restarts(p))
	}
	if _, err := compare(ctx, u, p); err != nil {
		t.Error(err)
	}
}
