// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// deaf is a mode whose driver does not return while a container is prepared, and
// heeds no context.
type deaf struct {
	serves
	inside  chan struct{}
	returns chan struct{}
}

func (d deaf) Prepare(context.Context, modes.Claim) (modes.Injection, error) {
	d.inside <- struct{}{}
	<-d.returns
	return modes.Injection{}, errors.New("the driver is back")
}

// onePodAt knows one pod while it is live.
type onePodAt struct {
	nobody
	pod  *corev1.Pod
	live *atomic.Bool
}

func (p onePodAt) Pod(o sharing.Owner) (*corev1.Pod, bool) {
	return p.pod, o == sharing.Owner(p.pod.UID) && p.live.Load()
}

// says resolves every call to one identity.
type says kubelet.Identity

func (s says) Resolve(context.Context, []string) (kubelet.Identity, error) {
	return kubelet.Identity(s), nil
}

func TestAStartWaitsForADeviceThatIsLookedAtButNotForEver(t *testing.T) {
	inv := inventoryOf()
	k, pod := managerOn(t, &inv), podOf(t, ourScheduler, shareOf(0, 1000))
	unlock, err := k.cfg.Devices.LockContext(t.Context(), string(inv.Devices[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := k.admitContainer(soon, pod, mainContainer(), slotsOf(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("started beside somebody who changes the device: %v", err)
	}
	unlock()
	if _, err := k.admitContainer(t.Context(), pod, mainContainer(), slotsOf(1)); err != nil {
		t.Error(err)
	}
}

// hanging is a manager with a pod whose start hangs in the driver.
func hanging(t *testing.T) (k *Manager, live *atomic.Bool) {
	t.Helper()
	inv := inventoryOf()
	k, live = managerOn(t, &inv), &atomic.Bool{}
	live.Store(true)
	d := deaf{serves{sharing.HAMiCore}, make(chan struct{}), make(chan struct{})}
	c := &k.cfg
	c.Pods = onePodAt{pod: podOf(t, ourScheduler, shareOf(0, 1000)), live: live}
	c.Preparers = []modes.Preparer{d}
	c.Resolver = says{Owner: "uid", Pod: types.NamespacedName{Namespace: "ns", Name: "p"}, Containers: []kubelet.Container{mainContainer()}}
	c.Specs = &cdi.Directory{Files: host.OS{}, Path: t.TempDir()}
	c.Kubelet = kubelet.Directory(t.TempDir()) // it has no record
	k.patience = 500 * time.Millisecond
	ended := make(chan struct{})
	go func() { defer close(ended); _ = k.Start(context.Background(), slotsOf(1)) }()
	<-d.inside
	t.Cleanup(func() { close(d.returns); <-ended })
	return k, live
}

// within calls something that must end with its context.
func within(t *testing.T, what string, do func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	got := make(chan error, 1)
	go func() { got <- do(ctx) }()
	select {
	case err := <-got:
		return err
	case <-time.After(10 * time.Minute):
		t.Fatalf("%s hangs too", what)
		return nil
	}
}

func TestAStartThatHangsHoldsUpNothingButItsOwnPod(t *testing.T) {
	k, live := hanging(t)
	err := within(t, "the kubelet's next try", func(ctx context.Context) error { return k.Start(ctx, slotsOf(1)) })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "ns/p") {
		t.Errorf("the next try is told %v", err)
	}
	live.Store(false)
	err = within(t, "the release of the pod", func(ctx context.Context) error { return k.Release(ctx, "uid") })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "uid") {
		t.Errorf("the release is told %v", err)
	}
	if err := within(t, "the release of another pod", func(ctx context.Context) error { return k.Release(ctx, "other") }); err != nil {
		t.Errorf("another pod is not released: %v", err)
	}
}

func TestReconcileGoesOnPastAReleaseThatHangs(t *testing.T) {
	k, live := hanging(t)
	live.Store(false)
	second := newRecord(claimOf(t, podOf(t, ourScheduler, shareOf(1, 1000)), func() *sharing.Inventory { i := inventoryOf(); return &i }()), slotsOf(1))
	second.ID, second.Owner, second.Pod = "id-2", "uid-2", "q"
	if err := k.cfg.Store.Put(second); err != nil {
		t.Fatal(err)
	}
	k.cfg.Pods = goneFor{k.cfg.Pods.(onePodAt)}
	err := within(t, "reconcile", k.Reconcile)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reconcile says %v", err)
	}
	if left := k.cfg.Store.Of("uid-2"); len(left) != 0 {
		t.Error("the pod behind the one that hangs is not released")
	}
}

// goneFor answers that every pod was replaced.
type goneFor struct{ onePodAt }

func (goneFor) Fetch(context.Context, types.NamespacedName) (*corev1.Pod, error) {
	return &corev1.Pod{}, nil
}
