// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
)

// A driver library that does not load is told on the node, and the device plugin
// goes on trying: no restart is needed when the driver comes.
func testDriver(t *testing.T, w *world) {
	ctx, u := w.user(t, "driver", 2*time.Minute)
	library := filepath.Join(w.cluster.LibraryDir(), "libnvidia-ml.so.1")
	aside := library + ".aside"
	if err := w.cluster.StopComponent(sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(library, aside); err != nil {
		t.Fatal(err)
	}
	back := func() {
		if _, err := os.Stat(aside); err == nil {
			if err := os.Rename(aside, library); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(back)
	if err := w.cluster.StartComponent(sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	if err := w.waitEvent(ctx, "libnvidia-ml.so.1"); err != nil {
		t.Errorf("no event tells that the driver library does not load: %v", err)
	}
	back()
	if err := w.cluster.WaitReady(ctx, sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	w.stillWorks(ctx, t, u)
}
