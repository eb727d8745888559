// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// A device with a fatal Xid, and one that is lost, leave the pool within seconds
// and come back without a restart.
func testHealth(t *testing.T, w *world) {
	cases := map[string][]string{
		"xid_79":          {"xid", "0", "79"},
		"lost_device":     {"lose", "1"},
		"reset_wanted":    {"recovery", "2", "reset"},
		"rows_not_mapped": {"remap", "3", "failed"},
	}
	mends := map[string][]string{"recovery": {"reset", "2"}, "remap": {"remap", "3", "none"}, "xid": {"restore", "0"}, "lose": {"restore", "1"}}
	for name, breaks := range cases {
		part(t, name, func(t *testing.T) {
			ctx, u := w.user(t, "health-"+breaks[0], 3*time.Minute)
			slots := w.slots(ctx, t)
			begin := time.Now()
			stop := w.keepBreaking(ctx, t, breaks)
			sick := w.waitHealthy(ctx, t, gpus-1)
			t.Logf("out of the pool after %.1f s", time.Since(begin).Seconds())
			w.avoids(ctx, t, u.Namespace(), sick)
			if now := w.slots(ctx, t); now != slots {
				t.Errorf("%d of %d slots are allocatable: the kubelet would refuse pods on devices that work", now, slots)
			}
			stop()
			if _, err := w.cluster.FakeGPU(ctx, mends[breaks[0]]...); err != nil {
				t.Fatal(err)
			}
			begin = time.Now()
			w.waitHealthy(ctx, t, gpus)
			t.Logf("back after %.1f s", time.Since(begin).Seconds())
		})
	}
}

// keepBreaking breaks a device every second until it is told to stop: one that has reported an
// error once is healthy again when it was quiet for a while, and a slow machine takes longer than
// that to start a pod.
func (w *world) keepBreaking(ctx context.Context, t *testing.T, breaks []string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var broken sync.WaitGroup
	broken.Go(func() {
		for {
			if _, err := w.cluster.FakeGPU(ctx, breaks...); err != nil && ctx.Err() == nil {
				t.Errorf("break a device by %v: %v", breaks, err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
	})
	stop = func() {
		cancel()
		broken.Wait()
	}
	t.Cleanup(stop) // also when the test has failed
	return stop
}

// slots is how many the kubelet of the real node says may be given.
func (w *world) slots(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Get(ctx, sandbox.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q := node.Status.Allocatable[workload.Number]
	return q.Value()
}

// avoids asks for one device more than there are healthy ones, in shares of
// which each needs its own, and expects exactly one pod to wait.
func (w *world) avoids(ctx context.Context, t *testing.T, namespace string, sick sharing.DeviceID) {
	t.Helper()
	_, u := w.user(t, namespace, 3*time.Minute)
	p := pod("all").App("main", workload.Ask{Number: gpus - 1, Memory: 1000}, "forever").Build()
	if err := u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	for _, s := range sharesOf(ctx, t, u, "all") {
		if s.Device == sick {
			t.Errorf("the broken device %s was given", sick)
		}
	}
	if err := u.Create(ctx, pod("more").App("main", workload.Ask{Number: gpus, Memory: 1000}, "info").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "more", "1 out of service (Unhealthy)"); err != nil {
		t.Error(err)
	}
	if err := u.Delete(ctx, "more", "all"); err != nil {
		t.Fatal(err)
	}
}

// waitHealthy waits until so many devices are published as healthy and returns
// one that is not, if any.
func (w *world) waitHealthy(ctx context.Context, t *testing.T, want int) sharing.DeviceID {
	t.Helper()
	for {
		inv := w.inventory(ctx, t)
		healthy, sick := 0, sharing.DeviceID("")
		for _, d := range inv.Devices {
			if d.Healthy {
				healthy++
			} else {
				sick = d.ID
			}
		}
		if healthy == want && len(inv.Devices) == gpus {
			return sick
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d devices healthy, want %d: %v", healthy, len(inv.Devices), want, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// inventory reads what the real node publishes.
func (w *world) inventory(ctx context.Context, t *testing.T) sharing.Inventory {
	t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Get(ctx, sandbox.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := wire.DecodeInventory(node.Annotations[wire.NodeInventory])
	if err != nil {
		t.Fatal(err)
	}
	return inv
}
