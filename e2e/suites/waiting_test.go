// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"fmt"
	"testing"
	"time"

	"deviceshare/e2e/workload"
)

// A pod that does not fit waits with an event that counts reasons per device,
// and starts when room is made.
func testWaiting(t *testing.T, w *world) {
	ctx, u := w.user(t, "waiting", 3*time.Minute)
	for i := range gpus {
		name := fmt.Sprintf("filler-%d", i)
		p := pod(name).App("main", workload.Ask{Number: 1, Memory: 60000}, "forever").Build()
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	for i := range gpus {
		if _, err := u.WaitRunning(ctx, fmt.Sprintf("filler-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	big := pod("big").App("main", workload.Ask{Number: 1, Memory: 50000}, "forever").Build()
	if err := u.Create(ctx, big); err != nil {
		t.Fatal(err)
	}
	text, err := u.WaitEvent(ctx, "big", fmt.Sprintf("0/%d devices", gpus), fmt.Sprintf("%d short of free memory (NotEnoughMemory)", gpus))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the pod's event: %s", text)
	if err := u.Delete(ctx, "filler-3"); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, "big"); err != nil {
		t.Errorf("room was made, yet the pod does not start: %v", err)
	}
}
