// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/reclaim"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/capacity"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"

	"deviceshare/sharing"
)

// wholeOn is a pod that has so many devices of node n1 whole, from one on, and may be evicted.
func wholeOn(t *testing.T, name, group string, first, number int) *corev1.Pod {
	t.Helper()
	var shares []sharing.Share
	for _, d := range devices("n1", 8, 10000).Devices[first : first+number] {
		s := share(d.ID, 10000)
		s.Whole = true
		shares = append(shares, s)
	}
	pod := runningOn(t, podOf(name, group, asks{number: int64(number)}), "n1", shares...)
	pod.Annotations[schedulingv1beta1.PodPreemptable] = "true"
	return pod
}

// cpuOnly is a pod without devices that may be evicted.
func cpuOnly(name, group string) *corev1.Pod {
	pod := boundTo(podOf(name, group, asks{}), "n1")
	pod.Annotations[schedulingv1beta1.PodPreemptable] = "true"
	return pod
}

// Devices and all sums have room, and the real amounts of the queue have not: the pods leave that
// make room in the queue, and nobody else.
func TestPreemptionMakesRoomInAQueueThatIsFull(t *testing.T) {
	high := groupIn("team", "new", 1)
	high.Spec.PriorityClassName = "high"
	for name, c := range map[string]struct {
		low        []*corev1.Pod
		capability string
		asks       asks
		leaving    []string
	}{
		"one pod with devices makes room": {
			low:        []*corev1.Pod{cpuOnly("a", "low"), wholeOn(t, "b", "low", 0, 2), cpuOnly("c", "low")},
			capability: "memory=25000", asks: asks{number: 1, memory: 9000}, leaving: []string{"b"},
		},
		"two have to leave": {
			low:        []*corev1.Pod{wholeOn(t, "a", "low", 0, 1), wholeOn(t, "b", "low", 1, 1), cpuOnly("c", "low")},
			capability: "memory=20000", asks: asks{number: 3, memory: 5000}, leaving: []string{"a", "b"},
		},
		"all together are not enough": {
			low:        []*corev1.Pod{wholeOn(t, "a", "low", 0, 1), cpuOnly("c", "low")},
			capability: "memory=20000", asks: asks{number: 3, memory: 8000},
		},
		"pods of other queues make no room in this one": {
			low:        []*corev1.Pod{wholeOn(t, "a", "others", 0, 2), cpuOnly("c", "low")},
			capability: "memory=5000", asks: asks{number: 1, memory: 8000},
		},
		"there is room": {
			low:        []*corev1.Pod{wholeOn(t, "a", "low", 0, 2)},
			capability: "memory=30000", asks: asks{number: 1, memory: 8000},
		},
	} {
		for _, how := range []string{"by sums", "in dry runs"} {
			t.Run(name+" "+how, func(t *testing.T) {
				objects := []runtime.Object{nodeOf(t, devices("n1", 8, 10000)), groupIn("team", "low", 0), high.DeepCopy(), podOf("new", "new", c.asks)}
				if strings.Contains(name, "other queues") {
					// Volcano tries no task of a queue after it has tried the jobs of another one.
					objects = append(objects, groupIn("default", "others", 0))
				}
				for _, pod := range c.low {
					objects = append(objects, pod.DeepCopy())
				}
				w := preempting(t, nil, objects...)
				w.cache.AddQueueV1beta1(queueBelow(t, "team", "", c.capability))
				w.actions = []conf.Configuration{{Name: "preempt", Arguments: map[string]any{"enableTopologyAwarePreemption": how == "in dry runs"}}}
				leaving, promised := w.preempted()
				if !slices.Equal(leaving, c.leaving) {
					t.Errorf("evicted %v, want %v", leaving, c.leaving)
				}
				if got := len(promised) > 0; got != (len(c.leaving) > 0 || name == "there is room") {
					t.Errorf("promised %v", promised)
				}
			})
		}
	}
}

// oneTier puts all plugins into one tier, as the shipped configuration has those that say who may
// be evicted.
func (w *world) oneTier(others ...string) {
	w.withPlugins(others...)
	var all []conf.PluginOption
	for _, tier := range w.tiers {
		all = append(all, tier.Plugins...)
	}
	w.tiers = []conf.Tier{{Plugins: all}}
}

// reclaimed runs a session with the action reclaim and returns who leaves.
func (w *world) reclaimed() (leaving []string) {
	w.t.Helper()
	ssn := w.open()
	defer framework.CloseSession(ssn)
	conf.EnabledActionMap = map[string]bool{"allocate": true, "reclaim": true}
	allocate.New().Execute(ssn)
	reclaim.New().Execute(ssn)
	for _, task := range ssn.Nodes["n1"].Tasks {
		if task.Status == api.Releasing {
			leaving = append(leaving, task.Name)
		}
	}
	slices.Sort(leaving)
	return leaving
}

// Team "mine" wants devices, of which team "theirs" has all.
func TestReclaimKeepsToTheRealAmountsOfQueues(t *testing.T) {
	type queue struct{ parent, capability, guarantee, deserved string }
	full := []*corev1.Pod{wholeOn(t, "a", "old", 0, 1), wholeOn(t, "b", "old", 1, 1), wholeOn(t, "c", "old", 2, 2)}
	for name, c := range map[string]struct {
		mine, theirs queue  // mine deserves 4 devices by number
		top          string // capability of the queue above both
		running      []*corev1.Pod
		asks         asks
		leaving      int
	}{
		"a queue without limits reclaims from one without": {running: full, asks: asks{number: 1}, leaving: 1},
		"its own capability would refuse the pod": {
			mine: queue{capability: "memory=15000"}, running: full, asks: asks{number: 2},
		},
		"its own capability would refuse what is written, times the number": {
			mine: queue{capability: "memory=15000"}, running: full, asks: asks{number: 2, memory: 8000},
		},
		"the queue does not deserve that much": {
			mine: queue{deserved: "memory=15000"}, running: full, asks: asks{number: 2},
		},
		"the queue deserves it": {
			mine: queue{deserved: "memory=10000"}, running: full, asks: asks{number: 1}, leaving: 1,
		},
		"the other one has no more than it deserves, all devices being whole": {
			theirs: queue{deserved: "number=2 memory=40000"}, running: full, asks: asks{number: 1},
		},
		"the other one has more than it deserves": {
			theirs: queue{deserved: "number=2 memory=35000"}, running: full, asks: asks{number: 1}, leaving: 1,
		},
		"the other one would have less than it is guaranteed": {
			theirs: queue{guarantee: "memory=40000"}, running: full, asks: asks{number: 1},
		},
		"the queue above has room once another one gives": {
			mine: queue{parent: "top"}, theirs: queue{parent: "top"}, top: "memory=40000", running: full, asks: asks{number: 1}, leaving: 1,
		},
		"the queue above would refuse the pod whoever leaves": {
			mine: queue{parent: "top"}, theirs: queue{parent: "top"}, top: "memory=15000", running: full, asks: asks{number: 2},
		},
	} {
		for _, beside := range []string{proportion.PluginName, capacity.PluginName} {
			t.Run(name+" beside "+beside, func(t *testing.T) {
				scarce := devices("n1", 4, 10000)
				for i := range scarce.Devices {
					scarce.Devices[i].MaxShares = 1 // the sums as written are short as well
				}
				objects := []runtime.Object{nodeOf(t, scarce), groupIn("theirs", "old", 0), groupIn("mine", "new", 1), podOf("new", "new", c.asks)}
				for _, pod := range c.running {
					objects = append(objects, pod.DeepCopy())
				}
				w := newWorld(t, objects...)
				c.mine.deserved += " number=4" // without it, capacity reclaims for nobody
				for name, q := range map[string]queue{"mine": c.mine, "theirs": c.theirs} {
					object := queueBelow(t, name, q.parent, q.capability)
					object.Spec.Deserved, object.Spec.Guarantee.Resource = amountsOf(t, q.deserved), amountsOf(t, q.guarantee)
					w.cache.AddQueueV1beta1(object)
				}
				w.cache.AddQueueV1beta1(queueBelow(t, "top", "", c.top))
				w.oneTier(beside)
				if leaving := w.reclaimed(); len(leaving) != c.leaving {
					t.Errorf("evicted %q, want %d", strings.Join(leaving, " "), c.leaving)
				}
			})
		}
	}
}

// A pod without devices that needs CPUs must not take what a queue is guaranteed of devices.
func TestAGuaranteeOfDevicesHoldsForWhoWantsCPUs(t *testing.T) {
	for name, c := range map[string]struct {
		guarantee string
		leaving   int
	}{
		"guaranteed":     {"memory=20000", 0},
		"not guaranteed": {"memory=1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupIn("theirs", "old", 0), groupIn("mine", "new", 1),
				withCPUs(wholeOn(t, "a", "old", 0, 1), 32), withCPUs(wholeOn(t, "b", "old", 1, 1), 32), withCPUs(podOf("new", "new", asks{}), 32))
			q := queueBelow(t, "theirs", "", "")
			q.Spec.Guarantee.Resource = amountsOf(t, c.guarantee)
			w.cache.AddQueueV1beta1(q)
			w.cache.AddQueueV1beta1(queueBelow(t, "mine", "", ""))
			w.oneTier(proportion.PluginName)
			if leaving := w.reclaimed(); len(leaving) != c.leaving {
				t.Errorf("evicted %v, want %d", leaving, c.leaving)
			}
		})
	}
}

// Volcano tries evictions on copies of its state, and puts pods back.
func TestADryRunCountsWhoWasTakenAwayInItOnly(t *testing.T) {
	old := groupIn("team", "old", 0)
	w := newWorld(t, nodeOf(t, devices("n1", 4, 10000)), old, groupIn("team", "new", 1), wholeOn(t, "a", "old", 0, 2), podOf("new", "new", asks{number: 1}))
	w.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=20000"))
	ssn := w.open()
	defer framework.CloseSession(ssn)
	task, a, n1, ctx := w.task(ssn, "new"), w.task(ssn, "a"), ssn.Nodes["n1"], t.Context()
	if err := ssn.SimulateRemoveTaskFn(ctx, ssn.GetCycleState(task.UID), task, a, n1); err == nil {
		t.Error("a dry run that nobody began")
	}
	if err := ssn.PrePredicateFn(task); err != nil {
		t.Fatal(err)
	}
	state, other := ssn.GetCycleState(task.UID).Clone(), ssn.GetCycleState(task.UID).Clone()
	has := func(when string, want bool) {
		t.Helper()
		if got := ssn.SimulateAllocatableFn(ctx, state, ssn.Queues["team"], task); got != want {
			t.Errorf("%s: the queue has room: %v", when, got)
		}
		if ssn.SimulateAllocatableFn(ctx, other, ssn.Queues["team"], task) || ssn.Allocatable(ssn.Queues["team"], task) {
			t.Errorf("%s: another dry run, or the session, has room", when)
		}
	}
	has("at first", false)
	if err := ssn.SimulateRemoveTaskFn(ctx, state, task, a, n1); err != nil {
		t.Fatal(err)
	}
	has("without the pod", true)
	if err := ssn.SimulateAddTaskFn(ctx, state, task, a, n1); err != nil {
		t.Fatal(err)
	}
	has("with the pod again", false)
}
