// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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
	const lanes, updates = 4, 2
	ctx, u := w.user(t, "update", 3*time.Minute)
	coming, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for n := 0; coming.Err() == nil; n++ {
				if !runs(ctx, t, u, fmt.Sprintf("lane%d-%d", lane, n)) {
					return
				}
				done.Add(1)
			}
		})
	}
	for update := range updates {
		sleep(ctx, 2*time.Second)
		before := done.Load()
		if err := w.cluster.StopComponent(sandbox.DevicePlugin); err != nil {
			t.Fatal(err)
		}
		for k := range lanes { // at once, when the node still counts its devices
			all.Go(func() {
				if runs(ctx, t, u, fmt.Sprintf("meanwhile%d-%d", update, k)) {
					done.Add(1)
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
		for done.Load() < before+3*lanes && ctx.Err() == nil && !t.Failed() {
			sleep(ctx, 50*time.Millisecond)
		}
	}
	stop()
	all.Wait()
	t.Logf("%d pods ran through %d updates of the device plugin", done.Load(), updates)
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
