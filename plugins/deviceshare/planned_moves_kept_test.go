// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/apis/pkg/apis/batch/v1alpha1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/capacity"
)

// replace says whether a controller makes a pod again at once.
func (l *lab) replace(name string, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaced[name] = on
}

// reclaimNothing takes the action reclaim out of the sessions.
func (l *lab) reclaimNothing() {
	l.actions = slices.DeleteFunc(l.actions, func(a framework.Action) bool { return a.Name() == "reclaim" })
}

// tickUntil lets seconds pass up to one of them.
func (l *lab) tickUntil(second int64) {
	l.t.Helper()
	for l.seconds.Load() < second {
		l.tick()
	}
}

// nodeOfPod is the node of a pod of the API server, "" if it has none.
func (l *lab) nodeOfPod(name string) string {
	pod := l.pod(name)
	if pod == nil {
		return ""
	}
	return pod.Spec.NodeName
}

// successor makes a pod for one that has moved.
func (l *lab) successor(name, group string, want asks, more ...func(*corev1.Pod)) *corev1.Pod {
	l.t.Helper()
	pod := since(movable(podOf(name, group, want)), l.seconds.Load())
	for _, change := range more {
		change(pod)
	}
	l.create(pod)
	return pod
}

// requireMoved checks that pods are on nodes.
func (l *lab) requireMoved(want map[string]string) {
	l.t.Helper()
	for pod, node := range want {
		if got := l.nodeOfPod(pod); got != node {
			l.t.Errorf("second %d: pod %s is on %q, want %q; told %q; evicted %v, holds %d, ends %v",
				l.seconds.Load(), pod, got, node, l.status.message(pod), l.evictions(), l.store.room.Holds(), l.store.room.Ends())
		}
	}
}

// A pod moves to the other device of its node. With policy spread its placeholder takes the device
// that is being cleared, which is the emptier one then.
func TestAPlaceThatIsKeptIsNotTheDeviceThatIsCleared(t *testing.T) {
	for _, rule := range []string{"binpack", "fragmentation", "spread"} {
		t.Run(rule, func(t *testing.T) {
			a := withGrace(movable(on(t, "a", "ma", "n1", 0, 6000)), 3)
			l := newMovesLab(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("ma", 0), groupOf("others", 0), groupOf("new", 1),
				a, on(t, "b", "others", "n1", 1, 3000), since(podOf("new", "new", asks{number: 1}), 0))
			l.args["deviceshare.SchedulePolicy"] = rule
			l.tickUntil(40)
			if got := l.evictions(); !slices.Equal(got, []string{"a"}) {
				t.Errorf("evicted %v", got)
			}
			l.requireMoved(map[string]string{"new": "n1", "a-1": "n1"})
		})
	}
}

// A pod that moves comes back: that it leaves does not free what its queue may have.
func TestNobodyMovesForTheLimitOfItsQueue(t *testing.T) {
	team := func(name string, members int32) runtime.Object { return groupIn("team", name, members) }
	l := newMovesLab(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), team("ma", 0), groupOf("others", 0), team("new", 1),
		withGrace(movable(on(t, "a", "ma", "n1", 0, 6000)), 3), on(t, "b", "others", "n2", 0, 3000), on(t, "c", "others", "n1", 1, 0), on(t, "d", "others", "n2", 1, 0),
		since(podOf("new", "new", asks{number: 1}), 0))
	l.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=15000"))
	l.reclaimNothing()
	l.tickUntil(40)
	if got := l.evictions(); len(got) > 0 {
		t.Errorf("evicted %v, and the queue has no room for both: new on %q, a-1 on %q, told %q", got, l.nodeOfPod("new"), l.nodeOfPod("a-1"), l.status.message("a-1"))
	}
}

// The same for what Volcano's plugin capacity limits.
func TestNobodyMovesForTheCPUsOfItsQueue(t *testing.T) {
	team := func(name string, members int32) runtime.Object { return groupIn("team", name, members) }
	l := newMovesLab(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), team("ma", 0), groupOf("others", 0), team("new", 1),
		withGrace(movable(withCPUs(on(t, "a", "ma", "n1", 0, 6000), 4)), 3), on(t, "b", "others", "n2", 0, 3000), on(t, "c", "others", "n1", 1, 0), on(t, "d", "others", "n2", 1, 0),
		since(withCPUs(podOf("new", "new", asks{number: 1}), 4), 0))
	q := queueBelow(t, "team", "", "")
	q.Spec.Capability = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("6")}
	l.cache.AddQueueV1beta1(q)
	l.oneTier(capacity.PluginName)
	asShipped(l)
	l.reclaimNothing()
	l.tickUntil(40)
	if got := l.evictions(); len(got) > 0 {
		t.Errorf("evicted %v, and the queue has no CPUs for both: new on %q, a-1 on %q, told %q", got, l.nodeOfPod("new"), l.nodeOfPod("a-1"), l.status.message("a-1"))
	}
}

// inTeam gives the mover of oneToMove a group of queue "team".
func inTeam(a *corev1.Pod) { a.Annotations[schedulingv1beta1.KubeGroupNameAnnotationKey] = "mb" }

// The place is kept, but not what the pod had of the limit of its queue.
func TestTheLimitOfAQueueIsKeptForASuccessor(t *testing.T) {
	l := newMovesLab(t, oneToMove(t, inTeam, nodeOf(t, devices("n3", 1, 10000)), groupIn("team", "mb", 0), groupIn("team", "thief", 0),
		on(t, "e", "others", "n3", 0, 2000))...) // n2 is the better place
	l.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=12000"))
	l.reclaimNothing()
	l.replace("a", false)
	l.tickUntil(11)
	l.create(since(podOf("thief", "thief", asks{number: 1, memory: 7000}), 11))
	l.tickUntil(12)
	if l.nodeOfPod("thief") != "" {
		t.Fatal("the queue has no limit: the test shows nothing")
	}
	l.tickUntil(16)
	l.successor("a-1", "mb", asks{number: 1, memory: 6000})
	l.tickUntil(40)
	l.requireMoved(map[string]string{"a-1": "n2", "new": "n1"})
}

// The successor needs no more of the limit than the pod has.
func TestAPodOfAFullQueueCanMove(t *testing.T) {
	l := newMovesLab(t, oneToMove(t, inTeam, groupIn("team", "mb", 0))...)
	l.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=8000"))
	l.reclaimNothing()
	l.tickUntil(40)
	l.requireMoved(map[string]string{"a-1": "n2", "new": "n1"})
}

// A place on which a pod is still ending is not free.
func TestNobodyMovesToAPlaceThatIsNotFreeYet(t *testing.T) {
	l := newMovesLab(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("ma", 0), groupOf("others", 0), groupOf("new", 1),
		withGrace(movable(on(t, "a", "ma", "n1", 0, 6000)), 3), withGrace(on(t, "b", "others", "n2", 0, 8000), 600), on(t, "e", "others", "n2", 0, 1000),
		on(t, "c", "others", "n1", 1, 0), on(t, "d", "others", "n2", 1, 0), since(podOf("new", "new", asks{number: 1}), 0))
	l.replace("b", false)
	l.tickUntil(5)
	l.leave("b") // it takes ten minutes
	l.caughtUp()
	l.tickUntil(60)
	if got := l.evictions(); len(got) > 0 {
		t.Errorf("evicted %v; a-1 on %q, told %q", got, l.nodeOfPod("a-1"), l.status.message("a-1"))
	}
}

// The same for CPUs of the node: with the placeholder, the node has less than nothing.
func TestNobodyMovesToCPUsThatAreNotFreeYet(t *testing.T) {
	l := newMovesLab(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("ma", 0), groupOf("others", 0), groupOf("new", 1), groupOf("plain", 0),
		withGrace(movable(withCPUs(on(t, "a", "ma", "n1", 0, 6000), 30)), 3), on(t, "b", "others", "n2", 0, 3000), withGrace(boundTo(withCPUs(podOf("e", "others", asks{}), 60), "n2"), 600),
		on(t, "c", "others", "n1", 1, 0), on(t, "d", "others", "n2", 1, 0), since(podOf("new", "new", asks{number: 1}), 0))
	l.replace("e", false)
	l.tickUntil(5)
	l.leave("e")
	l.caughtUp()
	l.tickUntil(60)
	if got := l.evictions(); len(got) > 0 {
		t.Errorf("evicted %v; a-1 on %q, told %q", got, l.nodeOfPod("a-1"), l.status.message("a-1"))
	}
}

// The place is lost before the pod was told to leave: it need not leave any more.
func TestAPodStaysWhosePlaceIsLostBeforeItWasTold(t *testing.T) {
	l := newMovesLab(t, oneToMove(t, nil)...)
	l.with("predicates")
	l.setLeads(false)
	l.tickUntil(11)
	(&roomHistory{lab: l}).cordon("n2", true)
	l.tick()
	l.setLeads(true)
	l.tickUntil(40)
	if got := l.evictions(); len(got) > 0 {
		t.Errorf("evicted %v, and no place is kept for it: a-1 on %q, told %q", got, l.nodeOfPod("a-1"), l.status.message("a-1"))
	}
}

// A pod that a controller adds may take the place of the successor, which waits instead: the job
// has as many pods as before.
func TestAPodThatIsAddedMeanwhileCostsTheJobNoPlace(t *testing.T) {
	l := newMovesLab(t, oneToMove(t, nil)...)
	l.setLeads(false)
	l.tickUntil(11)
	l.successor("a2", "ma", asks{number: 1, memory: 6000})
	l.tick()
	l.setLeads(true)
	l.tickUntil(40)
	l.requireMoved(map[string]string{"new": "n1"})
	if l.nodeOfPod("a2") != "n2" && l.nodeOfPod("a-1") != "n2" {
		t.Errorf("evicted %v; a2 on %q, a-1 on %q, told %q", l.evictions(), l.nodeOfPod("a2"), l.nodeOfPod("a-1"), l.status.message("a-1"))
	}
}

// teamToMove is oneToMove in which the mover is of a gang that cannot spare it; its mate is on n3.
func teamToMove(t *testing.T, more ...runtime.Object) []runtime.Object {
	return append([]runtime.Object{
		nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), nodeOf(t, devices("n3", 1, 10000)), groupOf("team", 2), groupOf("others", 0), groupOf("new", 1), groupOf("small", 0),
		withGrace(movable(on(t, "a", "team", "n1", 0, 6000)), 3), withGrace(movable(on(t, "z", "team", "n3", 0, 10000)), 3),
		on(t, "b", "others", "n2", 0, 3000), on(t, "c", "others", "n1", 1, 0), on(t, "d", "others", "n2", 1, 0),
		since(podOf("new", "new", asks{number: 1}), 0),
	}, more...)
}

// A restart forgets the places of the rest of a gang, though its controller may still end them.
func TestARestartKeepsThePlacesOfTheRestOfAGang(t *testing.T) {
	l := newMovesLab(t, teamToMove(t)...)
	l.tickUntil(11)
	l.restart()
	l.tick()
	l.leave("z") // its controller ends it
	l.replace("z", false)
	for second := range int64(5) {
		l.create(since(podOf(fmt.Sprint("small", second), "small", asks{number: 1, memory: 9000}), l.seconds.Load()))
		l.tick()
	}
	l.successor("z-9", "team", asks{number: 1, memory: 10000})
	l.tickUntil(40)
	l.requireMoved(map[string]string{"new": "n1", "z-9": "n3"})
}

// The rest of a gang is evicted for a more important pod: then its place is that pod's.
func TestThePlaceOfAPodThatIsPreemptedIsNotKept(t *testing.T) {
	objects := teamToMove(t, important("top", "top", 1))
	for _, o := range objects {
		if g, ok := o.(*schedulingv1beta1.PodGroup); ok && g.Name == "new" {
			g.Spec.Queue = "mine" // nobody of the queue of "top" waits for room
		}
		if pod, ok := o.(*corev1.Pod); ok && strings.Contains("bcd", pod.Name) {
			sparedPod(pod)
		}
	}
	l := newMovesLab(t, objects...)
	l.cache.AddQueueV1beta1(queueBelow(t, "mine", "", ""))
	l.reclaimNothing()
	keepsNoGangs(l)
	l.replace("z", false)
	l.tickUntil(11)
	l.create(since(podOf("top", "top", asks{number: 1, memory: 9500}), l.seconds.Load()))
	l.tick()
	l.tick()
	said := ""
	if z := l.pod("z"); z != nil {
		said = disruption(z)
	}
	t.Logf("evicted %v; pod z is told %q", l.evictions(), said)
	if strings.Contains(said, "a place is kept") {
		t.Errorf("pod z is preempted and told %q", said)
	}
	l.tickUntil(60)
	if !l.isBound("top") {
		t.Errorf("evicted %v, and top is not bound: told %q, ends %v", l.evictions(), l.status.message("top"), l.store.room.Ends())
	}
}

// After a pod has moved, a restart lets it move again at once.
func TestAPodThatMovedIsLeftAloneAfterARestart(t *testing.T) {
	l := newMovesLab(t, append(oneToMove(t, nil), groupOf("next", 1))...)
	l.tickUntil(20)
	l.requireMoved(map[string]string{"new": "n1", "a-1": "n2"})
	l.restart()
	moveAgain(t, l)
}

// moveAgain has n1 get room for pod "a-1" so that n2 has room for "next", and checks that it stays.
func moveAgain(t *testing.T, l *lab) {
	t.Helper()
	before := len(l.evictions())
	for _, name := range []string{"new", "b"} {
		l.replace(name, false)
		l.end(l.pod(name))
	}
	l.add(since(on(t, "e", "others", "n1", 0, 3000), l.seconds.Load()))
	l.add(since(podOf("next", "next", asks{number: 1}), l.seconds.Load()))
	l.tickUntil(l.seconds.Load() + 30)
	if got := l.evictions()[before:]; len(got) > 0 {
		t.Errorf("second %d: evicted %v again", l.seconds.Load(), got)
	}
}

// A sister that moves later does not make the first one movable again.
func TestAPodThatMovedIsLeftAloneThoughASisterMovesLater(t *testing.T) {
	l := newMovesLab(t, append(oneToMove(t, nil, nodeOf(t, devices("n3", 1, 10000)), nodeOf(t, devices("n4", 1, 10000)),
		withGrace(movable(on(t, "s", "ma", "n3", 0, 5000)), 3), on(t, "f", "others", "n4", 0, 4500)), groupOf("later", 1), groupOf("next", 1))...)
	l.tickUntil(20)
	l.requireMoved(map[string]string{"new": "n1", "a-1": "n2"})
	l.create(since(podOf("later", "later", asks{number: 1}), l.seconds.Load()))
	l.tickUntil(40)
	l.requireMoved(map[string]string{"later": "n3"})
	if got := l.evictions(); len(got) != 2 {
		t.Fatalf("evicted %v: the test shows nothing", got)
	}
	moveAgain(t, l)
}

// The successor comes, and in that second a more important pod for which room is being made on the
// same node.
func TestNoMoreImportantJobTakesThePlaceWhenTheSuccessorComes(t *testing.T) {
	inMine := groupIn("mine", "new", 1)
	l := newMovesLab(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("ma", 0), groupOf("others", 0), inMine, important("top", "top", 1),
		withGrace(movable(on(t, "a", "ma", "n1", 0, 6000)), 10), sparedPod(on(t, "b", "others", "n2", 0, 3000)), sparedPod(on(t, "c", "others", "n1", 1, 0)),
		withGrace(on(t, "d", "others", "n2", 1, 0), 200), since(podOf("new", "new", asks{number: 1}), 0))
	l.cache.AddQueueV1beta1(queueBelow(t, "mine", "", ""))
	l.reclaimNothing()
	l.replace("d", false)
	l.tickUntil(11)
	l.create(since(podOf("top", "top", asks{number: 1, memory: 6500}), l.seconds.Load()))
	l.tickUntil(13)
	if got := l.evictions(); !slices.Contains(got, "d") {
		t.Fatalf("evicted %v: the test shows nothing", got)
	}
	l.tickUntil(40)
	l.requireMoved(map[string]string{"a-1": "n2", "new": "n1"})
}

// A gang has enough members left, but not of each role: its places are kept as well.
func TestARoleThatCannotSpareThePodKeepsThePlacesOfTheOthers(t *testing.T) {
	objects := teamToMove(t, withGrace(movable(on(t, "y", "team", "n4", 0, 10000)), 3), nodeOf(t, devices("n4", 1, 10000)))
	for _, o := range objects {
		if g, ok := o.(*schedulingv1beta1.PodGroup); ok && g.Name == "team" {
			g.Spec.MinTaskMember = map[string]int32{"chief": 1, "worker": 1}
		}
		if pod, ok := o.(*corev1.Pod); ok && strings.Contains("azy", pod.Name) {
			pod.Annotations[v1alpha1.TaskSpecKey] = map[string]string{"a": "chief", "z": "worker", "y": "worker"}[pod.Name]
		}
	}
	l := newMovesLab(t, objects...)
	l.replace("z", false)
	l.replace("a", false)
	l.tickUntil(11)
	if got := l.evictions(); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("evicted %v", got)
	}
	l.leave("z") // its controller ends the gang
	for second := range int64(5) {
		l.create(since(podOf(fmt.Sprint("small", second), "small", asks{number: 1, memory: 9000}), l.seconds.Load()))
		l.tick()
	}
	l.successor("z-9", "team", asks{number: 1, memory: 10000}, ofRole("worker"))
	l.successor("a-9", "team", asks{number: 1, memory: 6000}, ofRole("chief"))
	l.tickUntil(30)
	l.requireMoved(map[string]string{"new": "n1", "a-9": "n2", "z-9": "n3"})
}

// The successor is bound before the pod is gone, and the scheduler restarts: nothing more is kept.
func TestARestartKeepsNoPlaceForAPodWhoseSuccessorIsBound(t *testing.T) {
	l := newMovesLab(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("ma", 0), groupOf("others", 0), groupOf("new", 1), groupOf("thief", 0),
		withGrace(movable(on(t, "a", "ma", "n1", 0, 4000)), 30), on(t, "b", "others", "n2", 0, 1000), on(t, "c", "others", "n1", 1, 0), on(t, "d", "others", "n2", 1, 0),
		since(podOf("new", "new", asks{number: 1}), 0))
	l.replace("a", false)
	l.tickUntil(11)
	l.successor("a-1", "ma", asks{number: 1, memory: 4000})
	l.tickUntil(14)
	l.requireMoved(map[string]string{"a-1": "n2"})
	l.restart()
	l.tick()
	l.create(since(podOf("thief", "thief", asks{number: 1, memory: 4000}), l.seconds.Load()))
	l.tick()
	l.tick()
	l.requireMoved(map[string]string{"thief": "n2"})
}

// The controller makes the successor again before it is bound.
func TestASuccessorMayBeMadeAgainBeforeItIsBound(t *testing.T) {
	l := newMovesLab(t, append(teamToMove(t), groupOf("thief", 0))...)
	l.replace("a", false)
	l.replace("z", false)
	l.tickUntil(11)
	l.leave("z")
	l.tickUntil(16)
	l.successor("a-1", "team", asks{number: 1, memory: 6000}) // one alone cannot start
	l.tick()
	l.endPod("a-1")
	l.create(since(podOf("thief", "thief", asks{number: 1, memory: 5000}), l.seconds.Load()))
	l.tick()
	l.successor("a-2", "team", asks{number: 1, memory: 6000})
	l.successor("z-2", "team", asks{number: 1, memory: 10000})
	l.tickUntil(40)
	l.requireMoved(map[string]string{"new": "n1", "a-2": "n2", "z-2": "n3"})
}

func ofRole(role string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[v1alpha1.TaskSpecKey] = role }
}
