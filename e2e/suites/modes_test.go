// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// switchable is a machine whose first two devices enter and leave mode mig without
// a reset, whose third cannot be partitioned, and whose fourth wants a reset.
const switchable = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA H100 80GB HBM3" memory=81559MiB cc=9.0 numa=0 mig=capable pci=0000:07:00.0 sms=132
gpu model="NVIDIA H100 80GB HBM3" memory=81559MiB cc=9.0 numa=0 mig=capable pci=0000:0f:00.0 sms=132
gpu model="Tesla T4" memory=15360MiB cc=7.5 numa=1 pci=0000:47:00.0 sms=40
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=1 mig=capable pci=0000:4e:00.0 sms=108
`

// testModes lets devices change their modes under pods, without restarting
// anything.
func testModes(t *testing.T, w *world) {
	ctx, u := w.user(t, "modes", 4*time.Minute)
	w.mode(ctx, t, u, `"operatingmode":"hami-core"`)
	if err := w.cluster.SwapGPUs(ctx, switchable); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, 4, func(d *sharing.Device) bool { return d.Mode == sharing.HAMiCore && d.Healthy })
	part(t, "idle_device", func(t *testing.T) { testIdleDevice(t, w) })
	part(t, "busy_device", func(t *testing.T) { testBusyDevice(t, w) })
	part(t, "placed_before", func(t *testing.T) { testPlacedBefore(t, w) })
	part(t, "three_modes", func(t *testing.T) { testThreeModes(t, w) })
	part(t, "administrator", func(t *testing.T) { testAdministrator(t, w) })
	part(t, "under_load", func(t *testing.T) { testEditsUnderLoad(t, w) })
	// The last edit gave some devices a mode that limits nothing; later suites name no mode.
	if err := errors.Join(u.ConfigureNodes(ctx, `{"nodeconfig":[]}`), w.cluster.SwapGPUs(ctx, topology())); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, gpus, func(d *sharing.Device) bool { return d.Mode == sharing.HAMiCore && d.Healthy })
}

// mode edits the settings of the real node.
func (w *world) mode(ctx context.Context, t *testing.T, u *user.User, settings string) {
	t.Helper()
	if err := u.ConfigureNodes(ctx, `{"nodeconfig":[{"name":"`+sandbox.NodeName+`",`+settings+`}]}`); err != nil {
		t.Fatal(err)
	}
}

// first edits the mode of the first device and waits until it takes pods in it.
func (w *world) first(ctx context.Context, t *testing.T, u *user.User, m sharing.Mode) sharing.DeviceID {
	t.Helper()
	w.mode(ctx, t, u, fmt.Sprintf(`"devices":[{"index":0,"mode":%q}]`, m))
	inv := w.waitDevices(ctx, t, 4, func(d *sharing.Device) bool { return d.Index != 0 || d.Mode == m && d.Healthy })
	return inv.Devices[0].ID
}

// named is a pod of 5000 MiB that names modes.
func named(name, modes string) *workload.Pod { return ask(name, 5000).Annotate(wire.UserMode, modes) }

// An idle device goes through every mode by editing the node configuration, and
// serves a pod in each.
func testIdleDevice(t *testing.T, w *world) {
	ctx, u := w.user(t, "idle", 3*time.Minute)
	ways := []sharing.Mode{sharing.MPS, sharing.MIG, sharing.TimeSlicing, sharing.HAMiCore, sharing.MIG, sharing.HAMiCore}
	for i, m := range ways[:rounds(4, len(ways))] {
		begin := time.Now()
		id := w.first(ctx, t, u, m)
		changed := time.Since(begin)
		name := fmt.Sprintf("in-%s-%d", m, i)
		p := started(ctx, t, u, named(name, string(m)).Annotate(wire.UserUseIDs, string(id)))
		if s := partitionOf(t, p); s.Mode != m || s.Device != id {
			t.Errorf("pod %s got %+v", name, s)
		}
		if m == sharing.MIG {
			if _, err := w.located(ctx, u, p); err != nil {
				t.Error(err)
			}
		}
		if err := w.nodeSaid(ctx, "GPUModeChanged", "in mode "+string(m)); err != nil {
			t.Error(err)
		}
		if err := u.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: ready after %.1f s, its pod ran", m, changed.Seconds())
	}
}

// A busy device keeps serving its pods in their mode, takes no new ones, and moves
// when the last one is gone; the pod that waited for the new mode starts then.
func testBusyDevice(t *testing.T, w *world) {
	ctx, u := w.user(t, "busy", 3*time.Minute)
	id := w.first(ctx, t, u, sharing.HAMiCore)
	holds := started(ctx, t, u, named("holds", "hami-core").Annotate(wire.UserUseIDs, string(id)))
	w.mode(ctx, t, u, `"devices":[{"index":0,"mode":"mig"}]`)
	inv := w.waitDevices(ctx, t, 4, func(d *sharing.Device) bool {
		return d.Index != 0 || d.Mode == sharing.MIG && !d.Healthy && strings.Contains(d.Reason, "busy/holds")
	})
	t.Logf("published: %s", inv.Devices[0].Reason)
	if err := w.nodeSaid(ctx, "GPUModeWaiting", "busy/holds"); err != nil {
		t.Error(err)
	}
	if said, err := u.WaitEvent(ctx, "holds", "DeviceModeKept", "to be in mode mig and stays in mode hami-core"); err != nil {
		t.Error(err)
	} else {
		t.Logf("the pod that runs is told: %s", said)
	}
	if err := u.Create(ctx, named("waits", "mig").Annotate(wire.UserUseIDs, string(id)).Build()); err != nil {
		t.Fatal(err)
	}
	said, err := u.WaitEvent(ctx, "waits", "1 changing mode (ChangingMode)")
	if err != nil {
		t.Error(err)
	}
	t.Logf("the pod that waits is told: %s", said)
	if p, err := u.Get(ctx, "holds"); err != nil || p.UID != holds.UID || p.Status.ContainerStatuses[0].RestartCount != 0 || p.Status.ContainerStatuses[0].State.Running == nil {
		t.Errorf("the pod that ran was touched: %v, %+v", err, p.Status)
	}
	if err := u.Delete(ctx, "holds"); err != nil {
		t.Fatal(err)
	}
	p, err := u.WaitRunning(ctx, "waits")
	if err != nil {
		t.Fatal(err)
	}
	if s := partitionOf(t, p); s.Mode != sharing.MIG || s.Device != id {
		t.Errorf("the pod that waited got %+v", s)
	}
	if err := reported(ctx, u, p); err != nil {
		t.Error(err)
	}
}

// A pod that was placed before the device left the mode is told so when it starts.
// One of a controller is evicted and placed anew; a bare one stays and is told what
// to do. The suite plays the scheduler that has not seen the edit.
func testPlacedBefore(t *testing.T, w *world) {
	ctx, u := w.user(t, "before", 3*time.Minute)
	id := w.first(ctx, t, u, sharing.TimeSlicing)
	late := func(name string) *corev1.Pod {
		return ask(name, 5000).Edit(func(p *corev1.Pod) { p.Spec.SchedulerName = "late" }).Build()
	}
	bare := late("bare")
	if err := u.Create(ctx, bare); err != nil {
		t.Fatal(err)
	}
	w.bindAs(ctx, t, u.Namespace(), "bare", id, sharing.HAMiCore)
	for _, words := range [][]string{
		{"DevicePrepareFailed", "is in mode time-slicing now; the pod was placed in hami-core"},
		{"DevicePlacementRefused", "kubectl delete pod -n before bare"},
	} {
		if _, err := u.WaitEvent(ctx, "bare", words...); err != nil {
			t.Error(err)
		}
	}
	w.replicas(ctx, t, u.Namespace(), 1, late("template"))
	old := w.replica(ctx, t, u, "")
	w.bindAs(ctx, t, u.Namespace(), old.Name, id, sharing.HAMiCore)
	if said, err := u.WaitEvent(ctx, old.Name, "DevicePlacedAnew", "is in mode time-slicing now"); err != nil {
		t.Error(err)
	} else {
		t.Log(said)
	}
	again := w.replica(ctx, t, u, old.Name)
	w.bindAs(ctx, t, u.Namespace(), again.Name, id, sharing.TimeSlicing)
	if _, err := u.WaitRunning(ctx, again.Name); err != nil {
		t.Error(err)
	}
	if _, err := u.Get(ctx, "bare"); err != nil {
		t.Errorf("the bare pod: %v", err)
	}
	if err := w.cluster.Client().AppsV1().ReplicaSets(u.Namespace()).Delete(ctx, "late", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// One node serves three modes, each on the device that a rule by UUID, by index or
// by model names. A pod without a list is placed by score, and one with a list
// falls to its second choice and is told why.
func testThreeModes(t *testing.T, w *world) {
	ctx, u := w.user(t, "three", 3*time.Minute)
	first, before := w.inventory(ctx, t).Devices[0].ID, w.versions(ctx, t)
	w.mode(ctx, t, u, fmt.Sprintf(`"operatingmode":"hami-core","devices":[{"uuid":%q,"mode":"mig"},{"index":1,"mode":"mps"},{"model":"T4","mode":"time-slicing"}]`, first))
	modes := []sharing.Mode{sharing.MIG, sharing.MPS, sharing.TimeSlicing, sharing.HAMiCore}
	inv := w.waitDevices(ctx, t, 4, func(d *sharing.Device) bool { return d.Mode == modes[d.Index] && d.Healthy })
	if now := w.versions(ctx, t); now.Node == before.Node || now.Device != before.Device || now.Geometry != before.Geometry {
		t.Errorf("the edit of the node configuration took the node from %+v to %+v", before, now)
	}
	for i, m := range modes {
		p := started(ctx, t, u, named("in-"+string(m), string(m)))
		if s := partitionOf(t, p); s.Mode != m || s.Device != inv.Devices[i].ID {
			t.Errorf("mode %s gave %+v", m, s)
		}
	}
	p := started(ctx, t, u, ask("by-score", 5000))
	t.Logf("a pod without a list got mode %s", partitionOf(t, p).Mode)
	p = started(ctx, t, u, ask("falls", 60000).Annotate(wire.UserMode, "mig,mps"))
	if s := partitionOf(t, p); s.Mode != sharing.MPS {
		t.Errorf("it fell to %+v", s)
	}
	said, err := u.WaitEvent(ctx, "falls", "DeviceModeFallback", "choice 2 of mig,mps", "1 without a free partition that is large enough (NoPartitionFits)")
	if err != nil {
		t.Error(err)
	}
	t.Log(said)
}

// What only an administrator can do is said with what to type, and goes on by
// itself when it is done.
func testAdministrator(t *testing.T, w *world) {
	ctx, u := w.user(t, "administrator", 3*time.Minute)
	w.mode(ctx, t, u, `"operatingmode":"hami-core","devices":[{"index":3,"mode":"mig"}]`)
	inv := w.waitDevices(ctx, t, 4, func(d *sharing.Device) bool {
		return d.Index != 3 || d.Mode == sharing.MIG && !d.Healthy && strings.Contains(d.Reason, "--gpu-reset")
	})
	t.Logf("published: %s", inv.Devices[3].Reason)
	if err := w.nodeSaid(ctx, "GPUModeNeedsAdministrator", "--gpu-reset"); err != nil {
		t.Error(err)
	}
	for _, command := range [][]string{{"mig", "3", "on"}, {"reset", "3"}} {
		if out, err := w.cluster.FakeGPU(ctx, command...); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	begin := time.Now()
	inv = w.waitDevices(ctx, t, 4, func(d *sharing.Device) bool { return d.Index != 3 || d.Mode == sharing.MIG && d.Healthy })
	t.Logf("in its mode %.0f s after the reset", time.Since(begin).Seconds())
	started(ctx, t, u, named("part", "mig").Annotate(wire.UserUseIDs, string(inv.Devices[3].ID)))
}
