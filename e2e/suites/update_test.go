// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// The device plugin is updated, as a DaemonSet does it, while pods come all the
// time. None of them is refused by a kubelet without its device plugin; those that
// come meanwhile wait.
func testUpdate(t *testing.T, w *world) {
	const lanes = 4
	updates := rounds(1, 2)
	ctx, u := w.user(t, "update", 3*time.Minute)
	coming := arrive(ctx, t, lanes, func(ctx context.Context, lane, n int) bool {
		return runs(ctx, t, u, fmt.Sprintf("lane%d-%d", lane, n))
	})
	var meanwhile sync.WaitGroup
	for update := range updates {
		sleep(ctx, 2*time.Second)
		before := coming.done.Load()
		if err := w.cluster.StopComponent(sandbox.DevicePlugin); err != nil {
			t.Fatal(err)
		}
		for k := range lanes { // at once, when the node still counts its devices
			meanwhile.Go(func() {
				if runs(ctx, t, u, fmt.Sprintf("meanwhile%d-%d", update, k)) {
					coming.done.Add(1)
				}
			})
		}
		sleep(ctx, 2*time.Second) // the new one's image is fetched
		if err := w.cluster.StartComponent(sandbox.DevicePlugin); err != nil {
			t.Fatal(err)
		}
		if err := w.cluster.WaitReady(ctx, sandbox.DevicePlugin); err != nil {
			t.Fatal(err)
		}
		coming.until(before + 3*lanes)
	}
	meanwhile.Wait()
	t.Logf("%d pods ran through %d updates of the device plugin", coming.end(), updates)
}

// runs lets a pod come and go, and reports whether it did what it came for.
func runs(ctx context.Context, t *testing.T, u *user.User, name string) bool {
	p := pod(name).App("main", workload.Ask{Number: 1, Memory: 500}, "info", "env", "alloc", "100", "expect", "ok").Build()
	if err := u.Create(ctx, p); err != nil {
		t.Error(err)
		return false
	}
	if !succeeds(ctx, t, u, name) {
		return false
	}
	if err := u.Delete(ctx, name); err != nil {
		t.Error(err)
		return false
	}
	return true
}
