// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
)

// quotaOf is a ResourceQuota of a namespace with limits such as "memory=20000 cores=50", for pods
// of some priority classes, or for all.
func quotaOf(t *testing.T, namespace, name, hard string, classes ...string) *corev1.ResourceQuota {
	t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-quota-" + name)}}
	q.Spec.Hard = corev1.ResourceList{}
	for name, amount := range amountsOf(t, hard) {
		q.Spec.Hard["limits."+name] = amount
	}
	if len(classes) > 0 {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
			ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: classes,
		}}}
	}
	return q
}

// inNamespace puts a group and its pods into a namespace.
func inNamespace(namespace string, objects ...runtime.Object) []runtime.Object {
	for _, o := range objects {
		o.(metav1.Object).SetNamespace(namespace)
	}
	return objects
}

func ofClass(class string, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.PriorityClassName = class
	return pod
}

func TestANamespaceTakesNoMoreThanItWasGiven(t *testing.T) {
	twice := func(a asks) []*corev1.Pod { return []*corev1.Pod{podOf("a", "a", a), podOf("b", "b", a)} }
	for name, c := range map[string]struct {
		quotas []*corev1.ResourceQuota
		queue  string // the capability of the pods' queue
		pods   []*corev1.Pod
		placed string
		says   string // to the pod that waits
	}{
		"number times memory": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "memory=20000")}, pods: twice(asks{number: 2, memory: 6000}), placed: "a",
			says: `namespace "ns" uses 12000MiB of 20000MiB limits.volcano.sh/vgpu-memory of ResourceQuota "gpus": 12000MiB more is 4000MiB too much`,
		},
		"up to the limit": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "memory=24000")}, pods: twice(asks{number: 2, memory: 6000}), placed: "a b",
		},
		"whole devices by what they have": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "memory=15000")}, pods: twice(asks{number: 1}), placed: "a",
			says: `namespace "ns" uses 10000MiB of 15000MiB limits.volcano.sh/vgpu-memory of ResourceQuota "gpus": 10000MiB more is 5000MiB too much`,
		},
		"compute": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "cores=100")}, pods: twice(asks{number: 1, memory: 10, cores: 60}), placed: "a",
			says: `namespace "ns" uses 60 percent of 100 percent limits.volcano.sh/vgpu-cores of ResourceQuota "gpus": 60 percent more is 20 percent too much`,
		},
		"the number of shares": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "number=3")}, pods: twice(asks{number: 2, memory: 10}), placed: "a",
			says: `namespace "ns" uses 2 of 3 limits.volcano.sh/vgpu-number of ResourceQuota "gpus": 2 more is 1 too much`,
		},
		"one model": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "memory.nvidia-test=9000 memory.other=0")}, pods: twice(asks{number: 1, memory: 5000}), placed: "a",
			says: `namespace "ns" uses 5000MiB of 9000MiB limits.volcano.sh/vgpu-memory.nvidia-test of ResourceQuota "gpus": 5000MiB more is 1000MiB too much`,
		},
		"each of several quotas holds": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "much", "memory=90000"), quotaOf(t, "ns", "little", "memory=9000")}, pods: twice(asks{number: 1, memory: 5000}), placed: "a",
			says: `namespace "ns" uses 5000MiB of 9000MiB limits.volcano.sh/vgpu-memory of ResourceQuota "little": 5000MiB more is 1000MiB too much`,
		},
		"that of another namespace does not": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "other", "gpus", "memory=1")}, pods: twice(asks{number: 1, memory: 5000}), placed: "a b",
		},
		"one for a class of priority counts pods of that class": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "number=1", "urgent")}, placed: "a b c",
			pods: []*corev1.Pod{podOf("a", "a", asks{number: 1, memory: 10}), ofClass("usual", podOf("b", "b", asks{number: 1, memory: 10})),
				ofClass("urgent", podOf("c", "c", asks{number: 1, memory: 10}))},
		},
		"and no more of them than it says": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "number=1", "urgent")}, placed: "a",
			pods: []*corev1.Pod{ofClass("urgent", podOf("a", "a", asks{number: 1, memory: 10})), ofClass("urgent", podOf("b", "b", asks{number: 1, memory: 10}))},
			says: `namespace "ns" uses 1 of 1 limits.volcano.sh/vgpu-number of ResourceQuota "gpus": 1 more is 1 too much`,
		},
		"that of the queue is named first": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "number=1")}, queue: "number=1", pods: twice(asks{number: 1, memory: 10}), placed: "a",
			says: `queue "team" uses 1 of 1 volcano.sh/vgpu-number: 1 more is 1 too much`,
		},
		"pods without devices are not counted": {
			quotas: []*corev1.ResourceQuota{quotaOf(t, "ns", "gpus", "number=0")}, pods: twice(asks{}), placed: "a b",
		},
		"an amount that Kubernetes counts itself is left to it": {
			quotas: []*corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gpus"}, Spec: corev1.ResourceQuotaSpec{
				Hard: corev1.ResourceList{"requests.volcano.sh/vgpu-memory": amountsOf(t, "memory=1")["volcano.sh/vgpu-memory"]}}}},
			pods: twice(asks{number: 1, memory: 5000}), placed: "a b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{nodeOf(t, devices("n1", 4, 10000))}
			for _, q := range c.quotas {
				objects = append(objects, q)
			}
			w := newWorld(t, objects...)
			w.cache.AddQueueV1beta1(queueBelow(t, "team", "", c.queue))
			w.checkOneAfterTheOther(c.pods, c.placed, c.says)
		})
	}
}

// checkOneAfterTheOther creates pods of queue team and checks who is placed, and what the second is
// told if it waits.
func (w *world) checkOneAfterTheOther(pods []*corev1.Pod, wantPlaced, says string) {
	w.t.Helper()
	var placed []string
	short := map[string]string{}
	for _, pod := range pods {
		w.create(groupIn("team", pod.Name, 1), pod)
		now, why := w.tried()
		placed, short = append(placed, now...), why
	}
	want := map[string]string{}
	if says != "" {
		want["b"] = says
	}
	checkTried(w.t.(*testing.T), slices.Compact(slices.Sorted(slices.Values(placed))), short, wantPlaced, want)
}

// Members of a gang count for different quotas, and are too many together for one.
func TestAGangIsWithinEachQuotaOfItsNamespaceTogether(t *testing.T) {
	for name, c := range map[string]struct{ hard, says string }{
		"they fit":           {hard: "number=2"},
		"two urgent are too": {hard: "number=1", says: `namespace "ns" uses 0 of 1 limits.volcano.sh/vgpu-number of ResourceQuota "gpus": 2 more is 1 too much`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, devices("n1", 4, 10000)), quotaOf(t, "ns", "gpus", c.hard, "urgent"), groupOf("g", 3),
				ofClass("urgent", podOf("a", "g", asks{number: 1, memory: 10})), podOf("b", "g", asks{number: 1, memory: 20}), ofClass("urgent", podOf("c", "g", asks{number: 1, memory: 30})))
			placed, _ := w.tried()
			if got := len(placed) == 3; got != (c.says == "") || !got && len(placed) > 0 {
				t.Errorf("placed %v", placed)
			}
			ssn := w.open()
			defer framework.CloseSession(ssn)
			if short, yes := w.plugin.limits.JobShortage(ssn.Jobs["ns/g"]); c.says != "" && (!yes || short.String() != c.says) {
				t.Errorf("the job is short of: %v %s\nwant %s", yes, short.String(), c.says)
			}
		})
	}
}

// Devices, sums and the queue have room, and the namespace has not: pods of the namespace leave,
// and nobody else.
func TestPreemptionMakesRoomInANamespaceThatIsFull(t *testing.T) {
	high := groupIn("team", "new", 1)
	high.Spec.PriorityClassName = "high"
	elsewhere := func(pod *corev1.Pod) *corev1.Pod { pod.Namespace = "other"; return pod }
	for name, c := range map[string]struct {
		low     []*corev1.Pod
		leaving []string
	}{
		"the one of the namespace leaves": {
			low: []*corev1.Pod{elsewhere(wholeOn(t, "a", "others", 0, 1)), wholeOn(t, "b", "low", 1, 2), cpuOnly("c", "low")}, leaving: []string{"b"},
		},
		"nobody does in vain": {
			low: []*corev1.Pod{elsewhere(wholeOn(t, "a", "others", 0, 2)), cpuOnly("c", "low")},
		},
	} {
		for _, how := range []string{"by sums", "in dry runs"} {
			t.Run(name+" "+how, func(t *testing.T) {
				memory := int64(9000)
				if len(c.leaving) == 0 {
					memory = 9500 // more than the namespace may ever have
				}
				objects := []runtime.Object{nodeOf(t, devices("n1", 8, 10000)), groupIn("team", "low", 0), inNamespace("other", groupIn("team", "others", 0))[0],
					high.DeepCopy(), podOf("new", "new", asks{number: 1, memory: memory})}
				for _, pod := range c.low {
					objects = append(objects, pod.DeepCopy())
				}
				w := preempting(t, nil, append(objects, quotaOf(t, "ns", "gpus", map[bool]string{true: "memory=25000", false: "memory=9000"}[len(c.leaving) > 0]))...)
				w.cache.AddQueueV1beta1(queueBelow(t, "team", "", ""))
				w.actions = []conf.Configuration{{Name: "preempt", Arguments: map[string]any{"enableTopologyAwarePreemption": how == "in dry runs"}}}
				leaving, promised := w.preempted()
				if !slices.Equal(leaving, c.leaving) || (len(promised) > 0) != (len(c.leaving) > 0) {
					t.Errorf("evicted %v, want %v; promised %v", leaving, c.leaving, promised)
				}
			})
		}
	}
}

func TestALimitOfANamespaceThatCannotBeMeantIsToldOnce(t *testing.T) {
	for name, c := range map[string]struct {
		hard string
		want []string
	}{
		"no such limit": {"memroy=5 memory-percentage=5", []string{
			"spec.hard limits.volcano.sh/vgpu-memory-percentage: is no limit of devices, and nobody counts it. There are: limits.volcano.sh/vgpu-number, limits.volcano.sh/vgpu-memory, limits.volcano.sh/vgpu-cores",
			"spec.hard limits.volcano.sh/vgpu-memroy: is no limit of devices, and nobody counts it. There are: limits.volcano.sh/vgpu-number, limits.volcano.sh/vgpu-memory, limits.volcano.sh/vgpu-cores"}},
		"a suffix":    {"memory=20Gi", []string{"spec.hard limits.volcano.sh/vgpu-memory: 20Gi counts as"}},
		"no such GPU": {"memory.h400=5", []string{"spec.hard limits.volcano.sh/vgpu-memory.h400: 5 is about a model that no device of the cluster has: it limits nothing"}},
		"a good one":  {"memory=5", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, devices("n1", 8, 81920)), quotaOf(t, "ns", "gpus", c.hard))
			for range 3 {
				w.explained()
			}
			said := w.report.all()
			slices.Sort(said)
			if len(said) != len(c.want) {
				t.Fatalf("told %q, want %q", said, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(said[i], "ResourceQuota gpus: NamespaceQuotaDoubtful: "+want) {
					t.Errorf("told %q, want %q", said[i], want)
				}
			}
		})
	}
}

// The oracle adds up what the pods ask for that exist on a node.
func TestNoOrderOfEventsPassesAQuotaOfANamespace(t *testing.T) {
	silence(t)
	waited := 0
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 77))
		limit := map[string]int64{"x": 15000 + r.Int64N(15000), "y": 5000 + r.Int64N(20000)}
		urgent := r.Int64N(10000)
		w := newWorld(t, nodeOf(t, devices("n1", 4, 10000)), nodeOf(t, devices("n2", 4, 10000)),
			quotaOf(t, "x", "all", fmt.Sprintf("memory=%d", limit["x"])), quotaOf(t, "y", "all", fmt.Sprintf("memory=%d", limit["y"])),
			quotaOf(t, "x", "urgent", fmt.Sprintf("memory=%d", urgent), "urgent"))
		w.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=45000"))
		for step := range 60 {
			held, _, _, _ := w.holding()
			switch op := r.IntN(12); {
			case op < 6:
				name, queue := fmt.Sprintf("p%d", step), []string{"team", "default"}[r.IntN(2)]
				pod := podOf(name, name, asks{number: 1 + r.Int64N(2), memory: 1000 + r.Int64N(9000)})
				if r.IntN(3) == 0 {
					pod = ofClass("urgent", pod)
				}
				w.create(inNamespace([]string{"x", "y", "z"}[r.IntN(3)], groupIn(queue, name, 1), pod)...)
			case op < 8 && len(held) > 0:
				w.deletePod(held[r.IntN(len(held))])
			case op < 11 && len(held) > 0:
				w.endPod(held[r.IntN(len(held))])
			default:
				w.restart() // another scheduler leads, which knows what the API server says
			}
			w.settled()
			sums := map[string]int64{}
			for _, pod := range w.pods() {
				if pod.Spec.NodeName == "" {
					if strings.Contains(w.status.message(pod.Name), "namespace \"") {
						waited++
					}
					continue
				}
				limits := pod.Spec.Containers[0].Resources.Limits
				number, memory := limits["volcano.sh/vgpu-number"], limits["volcano.sh/vgpu-memory"]
				sums[pod.Namespace] += number.Value() * memory.Value()
				if pod.Spec.PriorityClassName == "urgent" {
					sums[pod.Namespace+" urgent"] += number.Value() * memory.Value()
				}
			}
			if sums["x"] > limit["x"] || sums["y"] > limit["y"] || sums["x urgent"] > urgent {
				t.Fatalf("seed %d step %d: %v of %v, urgent %d", seed, step, sums, limit, urgent)
			}
		}
	}
	if waited == 0 {
		t.Error("no pod ever waited for its namespace: this shows little")
	}
}

// What a pod has counts also where its group is gone, and Volcano shows it in no job.
func TestANamespaceIsNotPassedByDeletingThePodGroup(t *testing.T) {
	for name, again := range map[string]bool{"the same scheduler": false, "another scheduler": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, devices("n1", 8, 10000)), quotaOf(t, "ns", "gpus", "memory=10000"), groupOf("old", 1), podOf("old", "old", asks{number: 1, memory: 10000}))
			w.settled()
			w.deleteGroup("old")
			if again {
				w.restart()
			}
			w.create(groupOf("new", 1), podOf("new", "new", asks{number: 1, memory: 1000}))
			w.schedule()
			w.settled()
			if held, _, _, _ := w.holding(); len(held) != 1 {
				t.Errorf("%v hold devices", held)
			}
		})
	}
}

func TestWhatANamespaceUsesIsKnownForItsMetrics(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 8, 10000)), quotaOf(t, "ns", "gpus", "memory=30000 cores=200"),
		groupOf("g", 2), podOf("a", "g", asks{number: 2, memory: 5000, cores: 10}), podOf("b", "g", asks{number: 1, memory: 3000}))
	w.settled()
	w.schedule()
	got := w.metrics()
	for name, want := range map[string]float64{
		`namespace_quota_used{namespace="ns",quota="gpus",resource="limits.volcano.sh/vgpu-memory"}`:  float64(sharing.MiBs(13000)),
		`namespace_quota_limit{namespace="ns",quota="gpus",resource="limits.volcano.sh/vgpu-memory"}`: float64(sharing.MiBs(30000)),
		`namespace_quota_used{namespace="ns",quota="gpus",resource="limits.volcano.sh/vgpu-cores"}`:   20,
		`namespace_quota_limit{namespace="ns",quota="gpus",resource="limits.volcano.sh/vgpu-cores"}`:  200,
	} {
		if value, there := got["deviceshare_"+name]; !there || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
}
