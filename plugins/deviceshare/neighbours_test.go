// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// wishing gives a pod an annotation.
func wishing(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod.Annotations[key] = value
	return pod
}

// withLabel gives a pod a label.
func withLabel(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod.Labels = map[string]string{key: value}
	return pod
}

func TestAPodWithoutNeighboursHasItsDeviceAsLongAsItIsThere(t *testing.T) {
	small := asks{number: 1, memory: 100}
	alone := wishing(podOf("alone", "g", small), wire.UserNeighbours, "none")
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), alone)
	w.schedule()
	w.bound("alone")
	at := w.placement("alone").Containers[0].Shares[0].Device
	w.create(podOf("a", "g", small), podOf("b", "g", small), wishing(podOf("second", "g", small), wire.UserNeighbours, "none"))
	w.schedule()
	for _, name := range []string{"a", "b"} {
		w.bound(name)
		if got := w.placement(name).Containers[0].Shares[0].Device; got == at {
			t.Errorf("pod %s shares device %s", name, at)
		}
	}
	if _, bound := w.binding("second"); bound {
		t.Error("a second pod without neighbours is bound, and there are pods on both devices")
	}
	w.settled()
	w.endPod("alone")
	w.schedule()
	w.bound("second")
}

// Labels are those of the moment: what runs is left alone, and what comes obeys.
func TestAnEditOfALabelConcernsPodsThatCome(t *testing.T) {
	one := asks{number: 1, memory: 100}
	shy := wishing(runningOn(t, podOf("shy", "g", one), "n1", share("GPU-n1-0", 100)), wire.UserNotBeside, "team=red; app=llm")
	friend := runningOn(t, podOf("friend", "g", one), "n1", share("GPU-n1-0", 100))
	red := withLabel(podOf("red", "g", one), "team", "red")
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), shy, friend, red)
	w.schedule()
	if _, bound := w.binding("red"); bound {
		t.Fatal("a pod is bound beside one that avoids it")
	}
	edited := friend.DeepCopy()
	edited.Labels = map[string]string{"app": "llm"}
	w.edit(edited)
	w.create(podOf("other", "g", one))
	w.schedule()
	w.bound("other")
	calm := shy.DeepCopy()
	delete(calm.Annotations, wire.UserNotBeside)
	w.edit(calm)
	w.schedule()
	w.bound("red")
}

// edit writes a pod and waits until the scheduler has seen it.
func (w *world) edit(pod *corev1.Pod) {
	w.t.Helper()
	written, err := w.client.CoreV1().Pods(pod.Namespace).Update(context.Background(), pod, metav1.UpdateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the edit is seen", func() bool {
		t := w.taskIn(pod.Name)
		return t != nil && len(t.Pod.Labels) == len(written.Labels) && len(t.Pod.Annotations) == len(written.Annotations)
	})
}

func TestAPodOfWhichItCannotBeReadWhomItAcceptsIsToldAndLeftAlone(t *testing.T) {
	one := asks{number: 1, memory: 100}
	spoilt := wishing(runningOn(t, podOf("spoilt", "g", one), "n1", share("GPU-n1-0", 100)), wire.UserNotBeside, "app!=llm")
	spoilt = wishing(spoilt, wire.UserNeighbours, "friends")
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), spoilt, podOf("p", "g", one))
	w.schedule()
	w.schedule()
	if _, bound := w.binding("p"); bound {
		t.Error("a pod is bound beside it")
	}
	if told := w.report.on(spoilt); len(told) != 1 || !strings.Contains(told[0], "DeviceNeighboursUnreadable") || !strings.Contains(told[0], wire.UserNotBeside) || !strings.Contains(told[0], wire.UserNeighbours) {
		t.Errorf("told %q", told)
	}
}

// Its quota is that of all that nobody else can have.
func TestAPodWithoutNeighboursCountsAsItsDevices(t *testing.T) {
	one := asks{number: 1, memory: 1000}
	w := newWorld(t, nodeOf(t, devices("n1", 3, 10000)), groupIn("narrow", "g", 1), groupIn("narrow", "h", 1),
		wishing(podOf("a", "g", one), wire.UserNeighbours, "none"), wishing(podOf("b", "h", one), wire.UserNeighbours, "none"))
	w.cache.AddQueueV1beta1(queueBelow(t, "narrow", "", "memory=15000"))
	placed, short := w.tried()
	if len(placed) != 1 || len(short) != 1 {
		t.Errorf("placed %v, short %v: two devices of 10000 are more than 15000", placed, short)
	}
}

// neighbourCases are pods that wait for what others accept.
func neighbourCases() map[string]waitCase {
	one := asks{number: 1, memory: 1000}
	beside := func(there, come func(*corev1.Pod) *corev1.Pod) func(*testing.T) *world {
		return func(t *testing.T) *world {
			return newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("h", 1), groupOf("g", 1),
				there(runningOn(t, podOf("holder", "h", one), "n1", share("GPU-n1-0", 1000))), come(podOf("p", "g", one)))
		}
	}
	as := func(p *corev1.Pod) *corev1.Pod { return p }
	wish := func(key, value string) func(*corev1.Pod) *corev1.Pod {
		return func(p *corev1.Pod) *corev1.Pod { return wishing(p, key, value) }
	}
	const apart = "1 with a pod that is kept apart from this one (KeptApart)"
	return map[string]waitCase{
		"the holder accepts none": {
			cause: news.Nodes, pod: "p", build: beside(wish(wire.UserNeighbours, "none"), as),
			want: []string{apart, "What helps: wait until pods end, or change what keeps them apart. Kept apart: pod ns/holder on node n1 has volcano.sh/vgpu-neighbours: none"},
		},
		"it accepts those of its group": {
			cause: news.Nodes, pod: "p", build: beside(as, wish(wire.UserNeighbours, "group")),
			want: []string{apart, "Kept apart: pod ns/holder on node n1, by this pod's volcano.sh/vgpu-neighbours: group"},
		},
		"the holder avoids it by a label": {
			cause: news.Nodes, pod: "p",
			build: beside(wish(wire.UserNotBeside, "team=red; app in (llm, web)"), func(p *corev1.Pod) *corev1.Pod { return withLabel(p, "app", "web") }),
			want:  []string{apart, "Kept apart: pod ns/holder on node n1 has volcano.sh/vgpu-not-beside: app in (llm, web)"},
		},
		"one of its group is on one device, and one that accepts none on the other": {
			cause: news.Nodes, pod: "p",
			build: func(t *testing.T) *world {
				mate := wishing(runningOn(t, podOf("mate", "g", one), "n1", share("GPU-n1-0", 1000)), wire.UserGroupPolicy, "spread")
				alone := wishing(runningOn(t, podOf("alone", "h", one), "n1", share("GPU-n1-1", 1000)), wire.UserNeighbours, "none")
				return newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("h", 1), groupOf("g", 1), mate, alone, wishing(podOf("p", "g", one), wire.UserGroupPolicy, "spread"))
			},
			want: []string{"1 with a pod of the same group (GroupAlreadyHere)", apart, "Kept apart: pod ns/alone on node n1 has volcano.sh/vgpu-neighbours: none"},
		},
		"it accepts none": {
			cause: news.Nodes, pod: "p", build: beside(as, wish(wire.UserNeighbours, "none")),
			want: []string{"1 in use and wanted without neighbours (WantsToBeAlone)", "What helps: wait until pods end, or accept neighbours in volcano.sh/vgpu-neighbours"},
		},
		"its wish cannot be read": {
			cause: news.Request, pod: "p", build: beside(as, wish(wire.UserNotBeside, "app!=llm")),
			want: []string{wire.UserNotBeside, "names pods by what they are not"},
		},
	}
}

// Whom a more important pod does not accept leaves for it, and nobody else.
func TestPodsThatAreNotAcceptedLeaveForAMoreImportantOne(t *testing.T) {
	for name, c := range map[string]struct {
		wish, value string
		others      func(t *testing.T) []runtime.Object
		evicted     []string
	}{
		"the only one on its device": {wire.UserNeighbours, "none", func(t *testing.T) []runtime.Object {
			return []runtime.Object{on(t, "a", "low", "n1", 0, 1000), on(t, "b", "low", "n1", 0, 1000), on(t, "c", "low", "n1", 1, 1000)}
		}, []string{"c"}},
		"the one that is named": {wire.UserNotBeside, "app=llm", func(t *testing.T) []runtime.Object {
			return []runtime.Object{withLabel(on(t, "a", "low", "n1", 0, 1000), "app", "llm"), on(t, "b", "low", "n1", 0, 1000),
				withLabel(sparedPod(on(t, "c", "low", "n1", 1, 1000)), "app", "llm")}
		}, []string{"a"}},
		"the one that accepts none": {wire.UserNeighbours, "any", func(t *testing.T) []runtime.Object {
			return []runtime.Object{wishing(on(t, "a", "low", "n1", 0, 1000), wire.UserNeighbours, "none"),
				wishing(sparedPod(on(t, "b", "low", "n1", 1, 1000)), wire.UserNeighbours, "none")}
		}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := planned{nodes: 1, class: "high", want: asks{number: 1, memory: 1000}, evicted: c.evicted, others: c.others(t), wish: [2]string{c.wish, c.value}}
			p.run(t)
		})
	}
}

// A place that is kept for one that waits is kept from those whom it does not accept: room that was
// made for a pod without neighbours is not taken by a small one.
func TestRoomThatWasMadeWithoutNeighboursIsKept(t *testing.T) {
	l := newLab(t, groupOf("low", 0), important("high", "new", 1), nodeOf(t, devices("n1", 1, 10000)), on(t, "a", "low", "n1", 0, 1000),
		wishing(podOf("new", "new", asks{number: 1, memory: 1000}), wire.UserNeighbours, "none"))
	l.tick()
	l.create(groupOf("late", 1), podOf("late", "late", asks{number: 1, memory: 1000}))
	for range 6 {
		l.tick()
	}
	if !l.isBound("new") || l.isBound("late") {
		t.Errorf("new is bound: %v, late is bound: %v", l.isBound("new"), l.isBound("late"))
	}
	if got := l.placement("new").Containers[0].Shares[0]; got.Memory != sharing.MiBs(1000) || got.Whole {
		t.Errorf("it got %+v", got)
	}
}

// A pod that selects others by name is bound while room is being made: what nodes answer depends on
// the names of pods from then on, and whose place it is does not.
func TestAPlaceIsKeptWhoeverBeginsToSelectByName(t *testing.T) {
	l := newLab(t, groupOf("low", 0), important("high", "new", 1), nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 1, 10000)),
		on(t, "a", "low", "n1", 0, 0), withGrace(on(t, "b", "low", "n1", 1, 0), 6), sparedPod(on(t, "c", "low", "n2", 0, 1000)),
		podOf("new", "new", asks{number: 2}))
	for range 3 { // one of two has left, and its device waits for the other one
		l.tick()
	}
	picky := wishing(podOf("picky", "picky", asks{number: 1, memory: 1000}), wire.UserNotBeside, "app=llm")
	l.create(groupOf("picky", 1), picky, groupOf("late", 1), podOf("late", "late", asks{number: 1}))
	for range 8 {
		l.tick()
	}
	evicted := l.evictions()
	slices.Sort(evicted)
	if !l.isBound("new") || l.isBound("late") || !l.isBound("picky") || !slices.Equal(evicted, []string{"a", "b"}) {
		t.Errorf("new is bound: %v, late: %v, picky: %v; evicted %v", l.isBound("new"), l.isBound("late"), l.isBound("picky"), evicted)
	}
}
