// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/preempt"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins"
	"volcano.sh/volcano/pkg/scheduler/plugins/priority"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// lowOn is a pod of low priority that runs on node n1 with so many MiB of one
// device, and so many CPUs.
func lowOn(t *testing.T, name, group string, device sharing.DeviceID, memory, cpus int64) *corev1.Pod {
	t.Helper()
	pod := runningOn(t, withCPUs(podOf(name, group, asks{number: 1, memory: memory}), cpus), "n1", share(device, memory))
	pod.Annotations[schedulingv1beta1.PodPreemptable] = "true"
	return pod
}

func withCPUs(pod *corev1.Pod, cpus int64) *corev1.Pod {
	for _, list := range []corev1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
		list[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
	}
	return pod
}

// preempting is a world in which group "high" is of high priority, with the plugins
// of the tier that say who may be evicted.
func preempting(t *testing.T, others []string, objects ...runtime.Object) *world {
	t.Helper()
	high := groupOf("high", 1)
	high.Spec.PriorityClassName = "high"
	w := newWorld(t, append(objects, high)...)
	w.cache.AddPriorityClass(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100})
	framework.RegisterPluginBuilder(priority.PluginName, priority.New)
	framework.RegisterPluginBuilder(proportion.PluginName, proportion.New)
	tier := w.tiers[0].Plugins
	for _, name := range append([]string{priority.PluginName, PluginName}, others...) {
		o := conf.PluginOption{Name: name}
		plugins.ApplyPluginConfDefaults(&o)
		tier = append(tier, o)
	}
	w.tiers = []conf.Tier{{Plugins: tier}}
	return w
}

// preempted runs a session and returns who is being evicted from node n1, and
// where the pod "new" was promised room, "" if nowhere.
func (w *world) preempted() (leaving []string, promised []sharing.DeviceID) {
	w.t.Helper()
	ssn := w.open()
	defer framework.CloseSession(ssn)
	conf.EnabledActionMap = map[string]bool{"allocate": true, "preempt": true}
	for _, a := range []framework.Action{allocate.New(), preempt.New()} {
		explainedAction{a, w.store}.Execute(ssn)
	}
	for _, task := range ssn.Nodes["n1"].Tasks {
		if task.Status == api.Releasing {
			leaving = append(leaving, task.Name)
		}
	}
	slices.Sort(leaving)
	if r, ok := w.plugin.overlay.placed["uid-new"]; ok {
		for _, s := range r.placement.Containers[0].Shares {
			promised = append(promised, s.Device)
		}
	}
	return leaving, promised
}

func TestPreemptionEvictsThePodsThatMakeRoomAndNobodyInVain(t *testing.T) {
	low := func(name, group string, device int, memory, cpus int64) *corev1.Pod {
		return lowOn(t, name, group, sharing.DeviceID(fmt.Sprintf("GPU-n1-%d", device)), memory, cpus)
	}
	stays := func(name string, device int, memory int64) *corev1.Pod {
		pod := low(name, "low", device, memory, 0)
		pod.Annotations[schedulingv1beta1.PodPreemptable] = "false"
		return pod
	}
	for name, c := range map[string]struct {
		devices  int
		low      []*corev1.Pod
		asks     asks
		cpus     int64
		dryRuns  bool
		leaving  []string
		promised []sharing.DeviceID
	}{
		"6000 MiB are taken of either device, in one share of the first and in two of the second": {
			devices: 2, low: []*corev1.Pod{low("a", "low", 0, 6000, 0), low("b", "low", 1, 3000, 0), low("c", "low", 1, 3000, 0)},
			asks: asks{number: 1, memory: 9000}, leaving: []string{"a"}, promised: []sharing.DeviceID{"GPU-n1-0"},
		},
		"the devices fit and CPUs do not: any pod may leave for its CPUs": {
			devices: 8, low: []*corev1.Pod{low("a", "low", 0, 10000, 16), low("b", "low", 1, 10000, 16), low("c", "low", 2, 10000, 16), low("d", "low", 3, 10000, 16)},
			asks: asks{number: 1, memory: 10000}, cpus: 16, leaving: []string{"d"}, promised: []sharing.DeviceID{"GPU-n1-3"},
		},
		"neither devices nor CPUs fit: one pod would be enough for its devices": {
			devices: 2, low: []*corev1.Pod{low("a", "low", 0, 10000, 32), low("b", "low", 1, 10000, 32)},
			asks: asks{number: 1, memory: 10000}, cpus: 64, leaving: []string{"a", "b"}, promised: []sharing.DeviceID{"GPU-n1-0"},
		},
		"the gang plugin keeps one pod: another one leaves": {
			devices: 2, low: []*corev1.Pod{low("a", "team", 0, 9900, 0), low("b", "low", 1, 9900, 0)},
			asks: asks{number: 1, memory: 9950}, leaving: []string{"b"}, promised: []sharing.DeviceID{"GPU-n1-1"},
		},
		"the gang plugin keeps one of two that would have to leave together: neither leaves": {
			devices: 2, low: []*corev1.Pod{low("z", "team", 0, 1000, 0), low("b", "low", 0, 8900, 0), stays("kept", 1, 7000)},
			asks: asks{number: 1, memory: 9950},
		},
		"dry runs: sums would stop after the first of two that have to leave": {
			devices: 2, low: []*corev1.Pod{low("a", "low", 0, 9900, 0), low("b", "low", 1, 9900, 0)},
			asks: asks{number: 2, memory: 9950}, dryRuns: true, leaving: []string{"a", "b"}, promised: []sharing.DeviceID{"GPU-n1-0", "GPU-n1-1"},
		},
		"dry runs: the sums have room from the start": {
			devices: 2, low: []*corev1.Pod{low("a", "low", 0, 3000, 0), low("b", "low", 1, 3000, 0)},
			asks: asks{number: 1, memory: 9000}, dryRuns: true, leaving: []string{"a"}, promised: []sharing.DeviceID{"GPU-n1-0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{nodeOf(t, devices("n1", c.devices, 10000)), groupOf("low", 0), groupOf("team", 1),
				withCPUs(podOf("new", "high", c.asks), c.cpus)}
			for _, pod := range c.low {
				objects = append(objects, pod)
			}
			w := preempting(t, nil, objects...)
			w.actions = []conf.Configuration{{Name: "preempt", Arguments: map[string]any{"enableTopologyAwarePreemption": c.dryRuns}}}
			leaving, promised := w.preempted()
			if !slices.Equal(leaving, c.leaving) || !slices.Equal(promised, c.promised) {
				t.Errorf("evicted %v, want %v; promised %v, want %v", leaving, c.leaving, promised, c.promised)
			}
			counted := w.metrics()
			if got := counted[`deviceshare_evictions_total{action="preempt"}`]; got != float64(len(c.leaving)) {
				t.Errorf("%v evictions count, want %d", got, len(c.leaving))
			}
			if got := counted[`deviceshare_waiting_pods{queue="default",reason="leaving"}`]; (got == 1) != (len(c.promised) > 0) {
				t.Errorf("%v pods count as waiting for others to leave, and %v is promised", got, promised)
			}
		})
	}
}

func TestAQueueAtItsQuotaMakesRoomWhereDevicesAreFree(t *testing.T) {
	group := func(name string, members int32) *schedulingv1beta1.PodGroup {
		g := groupOf(name, members)
		g.Spec.Queue = "small"
		return g
	}
	high := group("new", 1)
	high.Spec.PriorityClassName = "high"
	w := preempting(t, []string{proportion.PluginName}, nodeOf(t, devices("n1", 8, 10000)), group("low", 0), high,
		lowOn(t, "a", "low", "GPU-n1-0", 10000, 1), lowOn(t, "b", "low", "GPU-n1-1", 10000, 1), withCPUs(podOf("new", "new", asks{number: 1, memory: 10000}), 1))
	w.cache.AddQueueV1beta1(queueOf("small", corev1.ResourceList{wire.ResourceNumber: resource.MustParse("2")}))
	if leaving, promised := w.preempted(); len(leaving) != 1 || len(promised) != 1 {
		t.Errorf("evicted %v, promised %v", leaving, promised)
	}
}

// queueOf is an open queue with a capability.
func queueOf(name string, capability corev1.ResourceList) *schedulingv1beta1.Queue {
	return &schedulingv1beta1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: schedulingv1beta1.QueueSpec{Weight: 1, Capability: capability},
		Status: schedulingv1beta1.QueueStatus{State: schedulingv1beta1.QueueStateOpen},
	}
}
