// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// The library in the place of the driver's own: programs find it under the
// driver's name and the driver behind it, and both ways in count once.
func testStandingIn(t *testing.T, w *world) {
	ctx, u := w.user(t, "standing-in", 3*time.Minute)
	if err := u.ConfigureDevices(ctx, "nvidia:\n  standIn: true\n  deepbind: keep\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.defaultSettings(t, u) })
	log := untilTold(ctx, t, u, "deepbind keep")
	for _, word := range []string{"env standin=mapped", "env libvgpu=mapped", "total=1048576000"} {
		if !strings.Contains(log, word) {
			t.Errorf("the container must have %q:\n%s", word, log)
		}
	}
	ask := workload.Ask{Number: 1, Memory: 1000}
	beyond := []string{"alloc", "900", "expect", "ok", "alloc", "200", "expect", "oom", "free", "alloc", "900", "expect", "ok"}
	for _, way := range []string{"link", "dlsym", "getproc"} {
		if err := u.Create(ctx, pod(way).App("main", ask, append([]string{"via", way}, beyond...)...).Build()); err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range []string{"link", "dlsym", "getproc"} {
		succeeds(ctx, t, u, way)
	}
}

// untilTold starts pods until one is told a word in its limits file: the
// configuration has reached the node then. It returns that pod's output.
func untilTold(ctx context.Context, t *testing.T, u *user.User, word string) string {
	t.Helper()
	for i := 0; ; i++ {
		name := fmt.Sprintf("told-%d", i)
		if err := u.Create(ctx, pod(name).App("main", workload.Ask{Number: 1, Memory: 1000}, "info", "env").Build()); err != nil {
			t.Fatal(err)
		}
		if _, err := u.WaitDone(ctx, name); err != nil {
			t.Fatal(err)
		}
		log, err := u.Log(ctx, name, "main")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log, word) {
			return log
		}
	}
}
