// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/preempt"
	"volcano.sh/volcano/pkg/scheduler/actions/reclaim"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/capacity"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"
)

// pods lists the pods of the API server.
func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list, err := w.client.CoreV1().Pods(metav1.NamespaceAll).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// taskIn returns Volcano's task of a pod, nil if there is none.
func (w *world) taskIn(pod string) *api.TaskInfo {
	w.cache.Mutex.Lock()
	defer w.cache.Mutex.Unlock()
	for _, j := range w.cache.Jobs {
		if t := j.Tasks[api.TaskID("uid-"+pod)]; t != nil {
			return t
		}
	}
	return nil
}

// namespaceOf returns the namespace of a pod. Names are given once in a world.
func (w *world) namespaceOf(pod string) string {
	w.t.Helper()
	for _, p := range w.pods() {
		if p.Name == pod {
			return p.Namespace
		}
	}
	w.t.Fatalf("there is no pod %s", pod)
	return ""
}

// deletePod deletes a pod that ignores the signal to end: it stays, and says that it is being
// deleted.
func (w *world) deletePod(name string) {
	w.t.Helper()
	pods, namespace := corev1.SchemeGroupVersion.WithResource("pods"), w.namespaceOf(name)
	o, err := w.client.Tracker().Get(pods, namespace, name)
	if err != nil {
		w.t.Fatal(err)
	}
	pod := o.(*corev1.Pod).DeepCopy()
	now := metav1.NewTime(time.Unix(1700000000, 0))
	pod.DeletionTimestamp = &now
	if err := w.client.Tracker().Update(pods, pod, namespace); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("pod "+name+" is leaving", func() bool {
		t := w.taskIn(name)
		return t == nil || t.Pod.DeletionTimestamp != nil
	})
}

// endPod removes a pod: its containers have ended.
func (w *world) endPod(name string) {
	w.t.Helper()
	if err := w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), w.namespaceOf(name), name); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("pod "+name+" is gone", func() bool { return w.taskIn(name) == nil })
}

// deleteGroup deletes a pod group; its pods stay.
func (w *world) deleteGroup(name string) {
	w.t.Helper()
	if err := w.cache.VCClient().SchedulingV1beta1().PodGroups("ns").Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("group "+name+" is gone", func() bool {
		w.cache.Mutex.Lock()
		defer w.cache.Mutex.Unlock()
		j := w.cache.Jobs[api.JobID("ns/"+name)]
		return j == nil || j.PodGroup == nil
	})
}

// holding is what the pods of a queue have of its limits, by what the pods themselves ask for.
func (w *world) holding() (names []string, number, memory, cores int64) {
	for _, pod := range w.pods() {
		if pod.Spec.NodeName == "" {
			continue
		}
		names = append(names, pod.Name)
		limits := pod.Spec.Containers[0].Resources.Limits
		quantity := func(name corev1.ResourceName) int64 { q := limits[name]; return q.Value() }
		n := quantity("volcano.sh/vgpu-number")
		number, memory, cores = number+n, memory+n*quantity("volcano.sh/vgpu-memory"), cores+n*quantity("volcano.sh/vgpu-cores")
	}
	slices.Sort(names)
	return names, number, memory, cores
}

// Each round deletes the pod that has the queue's device, which stays for its grace period, and
// makes a new one.
func TestAQueueOfOneDeviceNeverHasTwoWhilePodsAreDeleted(t *testing.T) {
	for _, capability := range []string{"number=1", "memory=10000", "cores=100", "memory.nvidia-test=10000", "number.nvidia-test=1"} {
		for _, beside := range []string{proportion.PluginName, capacity.PluginName} {
			t.Run(capability+" beside "+beside, func(t *testing.T) {
				w := newWorld(t, nodeOf(t, devices("n1", 8, 10000)))
				w.withPlugins(beside)
				w.cache.AddQueueV1beta1(queueBelow(t, "team", "", capability))
				for i := range 4 {
					name := fmt.Sprintf("p%d", i)
					w.create(groupIn("team", name, 1), podOf(name, name, asks{number: 1, memory: 10000, cores: 100}))
					w.settled()
					if held, _, _, _ := w.holding(); len(held) != 1 {
						t.Fatalf("round %d: %v hold devices", i, held)
					}
					if i == 0 {
						w.deletePod(name)
					}
				}
				if got := w.status.message("p3"); !strings.Contains(got, "until pods that were deleted have ended") {
					t.Errorf("the pod was told %q", got)
				}
				w.endPod("p0")
				w.settled()
				if held, _, _, _ := w.holding(); len(held) != 1 || held[0] == "p0" {
					t.Errorf("%v hold devices", held)
				}
			})
		}
	}
}

// Pods whose group is deleted belong to no job any more, and hold what they have.
func TestAQueueIsNotPassedByDeletingThePodGroup(t *testing.T) {
	for name, again := range map[string]bool{"the same scheduler": false, "another scheduler": true} {
		t.Run(name, func(t *testing.T) {
			old := podOf("old", "old", asks{number: 1, memory: 10000})
			old.Annotations[schedulingv1beta1.QueueNameAnnotationKey] = "team"
			w := newWorld(t, nodeOf(t, devices("n1", 8, 10000)), groupIn("team", "old", 1), old)
			w.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=10000"))
			w.settled()
			w.deleteGroup("old")
			if again {
				w.restart()
			}
			w.create(groupIn("team", "new", 1), podOf("new", "new", asks{number: 1, memory: 1000}))
			w.schedule()
			w.schedule()
			w.settled()
			if held, _, _, _ := w.holding(); len(held) != 1 {
				t.Errorf("%v hold devices", held)
			}
		})
	}
}

// The oracle adds up what the pods ask for that exist on a node.
func TestNoOrderOfDeletionsPassesACapability(t *testing.T) {
	silence(t)
	waited := 0
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 52))
		w := newWorld(t, nodeOf(t, devices("n1", 4, 10000)), nodeOf(t, devices("n2", 4, 10000)))
		w.withPlugins(capacity.PluginName)
		w.cache.AddQueueV1beta1(queueBelow(t, "team", "", "number=5 memory=24000 cores=250"))
		made := 0
		for step := range 60 {
			held, _, _, _ := w.holding()
			switch op := r.IntN(10); {
			case op < 5:
				name := fmt.Sprintf("p%d", made)
				made++
				w.create(groupIn("team", name, 1), podOf(name, name, asks{number: 1 + r.Int64N(2), memory: 1000 + r.Int64N(9000), cores: r.Int64N(100)}))
			case op < 8 && len(held) > 0:
				w.deletePod(held[r.IntN(len(held))])
			case len(held) > 0:
				w.endPod(held[r.IntN(len(held))])
			}
			w.settled()
			held, number, memory, cores := w.holding()
			if number > 5 || memory > 24000 || cores > 250 {
				t.Fatalf("seed %d step %d: %v hold %d devices, %d MiB, %d percent", seed, step, held, number, memory, cores)
			}
			for _, pod := range w.pods() {
				if pod.Spec.NodeName == "" && strings.Contains(w.status.message(pod.Name), "until pods that were deleted") {
					waited++
				}
			}
		}
	}
	if waited == 0 {
		t.Error("no pod ever waited for one that was deleted: this shows little")
	}
}

// A pod of high priority has evicted one. Until that has ended, nobody else is evicted for it, and
// no later pod takes the room that it leaves.
func TestWhilePodsLeaveAQueueNobodyElseIsEvicted(t *testing.T) {
	for _, how := range []string{"by sums", "in dry runs"} {
		t.Run(how, func(t *testing.T) {
			high := groupIn("team", "new", 1)
			high.Spec.PriorityClassName = "high"
			w := preempting(t, nil, nodeOf(t, devices("n1", 8, 10000)), groupIn("team", "low", 0),
				wholeOn(t, "a", "low", 0, 1), wholeOn(t, "b", "low", 1, 1), wholeOn(t, "c", "low", 2, 1), high, podOf("new", "new", asks{number: 1, memory: 10000}))
			w.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=35000"))
			w.actions = []conf.Configuration{{Name: "preempt", Arguments: map[string]any{"enableTopologyAwarePreemption": how == "in dry runs"}}}
			w.create(wholeOn(t, "d", "low", 3, 1))
			leaving, _ := w.preempted()
			if len(leaving) == 0 {
				t.Fatal("nobody was evicted")
			}
			for _, name := range leaving {
				w.deletePod(name)
			}
			w.create(groupIn("team", "late", 1), podOf("late", "late", asks{number: 1, memory: 9000}))
			for range 3 {
				if again, _ := w.preempted(); !slices.Equal(again, leaving) {
					t.Fatalf("%v are leaving, after %v", again, leaving)
				}
			}
			for _, name := range leaving {
				w.endPod(name)
			}
			w.settled()
			if held, _, memory, _ := w.holding(); !slices.Contains(held, "new") || slices.Contains(held, "late") {
				t.Errorf("%v hold %d MiB", held, memory)
			}
		})
	}
}

// reclaims runs a session with the actions of the shipped configuration that evict.
func (w *world) reclaims() {
	ssn := w.open()
	defer framework.CloseSession(ssn)
	conf.EnabledActionMap = map[string]bool{"allocate": true, "preempt": true, "reclaim": true}
	for _, a := range []framework.Action{allocate.New(), preempt.New(), reclaim.New()} {
		explainedAction{a, w.store}.Execute(ssn)
	}
}

// The queue above both is full; one pod that leaves it is enough.
func TestReclaimWaitsForPodsThatLeaveTheQueueAbove(t *testing.T) {
	scarce := devices("n1", 8, 10000)
	for i := range scarce.Devices {
		scarce.Devices[i].MaxShares = 1
	}
	objects := []runtime.Object{nodeOf(t, scarce), groupIn("theirs", "old", 0), groupIn("mine", "new", 1), podOf("new", "new", asks{number: 1, memory: 10000})}
	for i := range 8 {
		objects = append(objects, wholeOn(t, fmt.Sprintf("old-%d", i), "old", i, 1))
	}
	w := newWorld(t, objects...)
	for _, name := range []string{"mine", "theirs"} {
		q := queueBelow(t, name, "top", "")
		q.Spec.Deserved = amountsOf(t, "number=4")
		w.cache.AddQueueV1beta1(q)
	}
	w.cache.AddQueueV1beta1(queueBelow(t, "top", "", "memory=80000"))
	w.oneTier(proportion.PluginName)
	w.reclaims()
	leaving := func() (names []string) {
		for i := range 8 {
			if t := w.taskIn(fmt.Sprintf("old-%d", i)); t != nil && t.Status == api.Releasing {
				names = append(names, t.Name)
			}
		}
		return names
	}
	w.eventually("one is evicted", func() bool { return len(leaving()) > 0 })
	for _, name := range leaving() {
		w.deletePod(name)
	}
	for range 3 {
		w.reclaims()
	}
	if got := leaving(); len(got) != 1 {
		t.Errorf("%v are leaving for one pod", got)
	}
}
