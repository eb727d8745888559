// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// cordonedNode is a node with two devices, the first of them with a cordon.
func cordonedNode(t *testing.T, c sharing.Cordon) *corev1.Node {
	t.Helper()
	inv := devices("n1", 2, 10000)
	inv.Devices[0].Cordon = &c
	return nodeOf(t, inv)
}

func TestACordonedDeviceTakesNoNewPodsAndKeepsThoseOnIt(t *testing.T) {
	l := newLab(t, cordonedNode(t, sharing.Cordon{Reason: "fan"}), groupOf("old", 1), on(t, "there", "old", "n1", 0, 1000))
	l.create(groupOf("fits", 1), podOf("fits", "fits", asks{number: 1, memory: 8000}), groupOf("waits", 1), podOf("waits", "waits", asks{number: 1, memory: 8000}))
	l.eventually("one is bound and the other told why not", func() bool {
		l.tick()
		_, bound := l.binding("fits")
		return bound && strings.Contains(l.status.message("waits"), "Cordoned")
	})
	if got := l.placement("fits").Containers[0].Shares[0].Device; got != "GPU-n1-1" {
		t.Errorf("bound with %s", got)
	}
	const want = `0/2 devices fit container "c0", 1 wanted: 1 short of free memory (NotEnoughMemory), 1 cordoned by an administrator (Cordoned)`
	if got := l.status.message("waits"); !strings.Contains(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if got := l.evictions(); len(got) > 0 {
		t.Errorf("evicted %q", got)
	}
	l.publish(nodeOf(t, devices("n1", 2, 10000)))
	l.eventually("the device is used again", func() bool { l.tick(); _, bound := l.binding("waits"); return bound })
}

func TestACordonEndsAtItsTimeWithoutAnybody(t *testing.T) {
	l := newLab(t, groupOf("g", 1))
	end := l.seconds.Load() + 20
	l.create(cordonedNode(t, sharing.Cordon{Until: time.Unix(1700000000+end, 0).UTC().Format(time.RFC3339)}), podOf("big", "g", asks{number: 2}))
	l.eventually("the pod is bound", func() bool { l.tick(); _, bound := l.binding("big"); return bound })
	if now := l.seconds.Load(); now < end {
		t.Errorf("bound in second %d, the cordon ends in second %d", now, end)
	}
}

// A place that was cleared on a device is lost when people cordon it: the job plans again.
func TestRoomIsMadeOnNoCordonedDevice(t *testing.T) {
	inv := devices("n1", 2, 10000)
	inv.Devices[0].Cordon = &sharing.Cordon{}
	l := newLab(t, nodeOf(t, inv), groupOf("low", 0),
		on(t, "cordoned", "low", "n1", 0, 9000), on(t, "small", "low", "n1", 1, 5000), on(t, "smaller", "low", "n1", 1, 4000))
	l.create(important("high", "high", 1), podOf("high", "high", asks{number: 1, memory: 9000}))
	l.eventually("the pod is bound", func() bool { l.tick(); _, bound := l.binding("high"); return bound })
	if got, want := slices.Sorted(slices.Values(l.evictions())), []string{"small", "smaller"}; !slices.Equal(got, want) {
		t.Errorf("evicted %q, want %q: the pod of the cordoned device would have been one only", got, want)
	}
}

func TestADrainedDeviceIsEmptiedAndItsPodsStartElsewhere(t *testing.T) {
	l := newLab(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("web", 0),
		movable(on(t, "a", "web", "n1", 0, 1000)), movable(on(t, "b", "web", "n1", 1, 1000)), on(t, "bare", "web", "n1", 0, 1000))
	for _, name := range []string{"a", "b"} {
		l.replace(name, true)
	}
	l.tick()
	l.publish(cordonedNode(t, sharing.Cordon{Drains: true, By: "carol"}))
	l.eventually("the pod with a controller has left, and started elsewhere", func() bool {
		l.tick()
		return len(l.evictions()) > 0 && slices.ContainsFunc(l.pods(), func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, "a-") && p.Spec.NodeName != "" })
	})
	if got, want := l.evictions(), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("evicted %q, want %q", got, want)
	}
	for _, p := range l.pods() {
		if strings.HasPrefix(p.Name, "a-") {
			if got := l.placement(p.Name).Containers[0].Shares[0].Device; got != "GPU-n1-1" {
				t.Errorf("%s is bound with %s", p.Name, got)
			}
		}
	}
	const want = "GPUDrainHeldUp: device 0 (GPU-n1-0) of this node is not drained before these pods have left: ns/bare (no controller would make it again: delete it yourself)"
	if all := strings.Join(l.report.all(), "\n"); !strings.Contains(all, want) {
		t.Errorf("reported\n%s\nwant %s", all, want)
	}
}

func TestCordonsThatCannotBeReadCloseTheNode(t *testing.T) {
	n := nodeOf(t, devices("n1", 2, 10000))
	n.Annotations[wire.NodeCordon] = `{"version":1,"devices":{"GPU-n1-0":{"effect":"Never","until":"noon"}}}`
	l := newLab(t, n, groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 1000}))
	l.eventually("the pod is told", func() bool { l.tick(); return strings.Contains(l.status.message("p"), "Cordoned") })
	want := `DeviceCordonsUnreadable: no device of the node takes new pods until it can be read which are cordoned: correct or remove the annotation volcano.sh/vgpu-cordon: ` +
		`cordons: devices["GPU-n1-0"].effect: "Never" is not known: want NoSchedule or NoExecute; ` +
		`cordons: devices["GPU-n1-0"].until: "noon" is no time such as 2026-01-31T15:04:05Z`
	if all := strings.Join(l.report.all(), "\n"); !strings.Contains(all, want) {
		t.Errorf("reported\n%s\nwant %s", all, want)
	}
	l.publish(nodeOf(t, devices("n1", 2, 10000)))
	l.eventually("the pod is bound", func() bool { l.tick(); _, bound := l.binding("p"); return bound })
}
