// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/conf"

	"deviceshare/sharing/wire"
)

// movable has a pod say that it may move, and gives it a controller.
func movable(pod *corev1.Pod) *corev1.Pod {
	isController := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "of-" + pod.Name, UID: "rs", Controller: &isController}}
	pod.Annotations[wire.UserMayMove] = "true"
	return pod
}

// since gives a pod the second in which it was made.
func since(pod *corev1.Pod, second int64) *corev1.Pod {
	pod.CreationTimestamp = metav1.NewTime(time.Unix(1700000000+second, 0))
	return pod
}

// disruption is why a pod has to leave, "" if it need not.
func disruption(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c.Message
		}
	}
	return ""
}

// newMovesLab is a lab with the action consolidate, in which all pods are made again.
func newMovesLab(t *testing.T, objects ...runtime.Object) *lab {
	t.Helper()
	l := newLab(t, objects...)
	l.world.actions = []conf.Configuration{{Name: "consolidate", Arguments: map[string]any{"after": "10s"}}}
	l.actions = slices.Insert(l.actions, 2, l.store.MakingRoom(consolidateAction{}))
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			l.replaced[pod.Name] = true
		}
	}
	return l
}

// oneToMove are two nodes. Pod "a" of 6,000 MiB is alone on a device of n1 and fits beside "b" on
// n2. Pod "new" waits for a whole device.
func oneToMove(t *testing.T, change func(a *corev1.Pod), more ...runtime.Object) []runtime.Object {
	a := withGrace(movable(on(t, "a", "ma", "n1", 0, 6000)), 3)
	if change != nil {
		change(a)
	}
	return append([]runtime.Object{
		nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("ma", 0), groupOf("others", 0), groupOf("new", 1),
		a, on(t, "b", "others", "n2", 0, 3000), on(t, "c", "others", "n1", 1, 0), on(t, "d", "others", "n2", 1, 0),
		since(podOf("new", "new", asks{number: 1}), 0),
	}, more...)
}

func TestAPodMovesSoThatAnotherHasRoom(t *testing.T) {
	l := newMovesLab(t, append(oneToMove(t, nil), groupOf("small", 0))...)
	for second := range int64(9) {
		if l.tick(); len(l.evictions()) > 0 {
			t.Fatalf("%v moved after %d s", l.evictions(), second+1)
		}
	}
	l.tick()
	said := disruption(l.pod("a"))
	for i := range 12 { // in each second, others come who would fit there
		l.add(since(podOf(fmt.Sprint("small", i), "small", asks{number: 1, memory: 5000}), l.seconds.Load()))
		l.tick()
	}
	if got := l.evictions(); !slices.Equal(got, []string{"a"}) || !l.isBound("new") || l.pod("new").Spec.NodeName != "n1" {
		t.Errorf("moved %v; new is bound: %v, told %q", got, l.isBound("new"), l.status.message("new"))
	}
	if again := l.pod("a-1"); again == nil || again.Spec.NodeName != "n2" {
		t.Errorf("pod a was made again as %+v, want it on n2; told %q", again, l.status.message("a-1"))
	}
	if want := "makes room on n1 for ns/new; it may move, and a place is kept for it on n2"; said != want {
		t.Errorf("told %q, want %q", said, want)
	}
	for range 20 {
		l.tick()
	}
	if got := l.evictions(); len(got) != 1 || l.store.room.Holds() != 0 {
		t.Errorf("evicted %v, %d holds are left", got, l.store.room.Holds())
	}
}

// The place is still kept if the scheduler is another one meanwhile.
func TestThePlaceOfAPodThatMovesIsFoundAgainAfterARestart(t *testing.T) {
	for at := int64(11); at <= 14; at++ {
		l := newMovesLab(t, append(oneToMove(t, nil), groupOf("small", 0))...)
		for l.seconds.Load() < 24 {
			if l.tick(); l.seconds.Load() == at {
				l.restart()
			}
			if l.pod("a-1") == nil && l.seconds.Load() > 10 {
				l.add(since(podOf(fmt.Sprint("small", l.seconds.Load()), "small", asks{number: 1, memory: 5000}), l.seconds.Load()))
			}
		}
		again, isBound := l.pod("a-1"), l.isBound("new")
		if len(l.evictions()) != 1 || !isBound || again == nil || again.Spec.NodeName == "" && at != 14 {
			t.Errorf("restarted at %d: evicted %v, new is bound: %v, a-1: %v", at, l.evictions(), isBound, again != nil && again.Spec.NodeName != "")
		}
	}
}

// Jobs of one session ask for different resources, and nothing helps the first of them.
func TestAPodMovesForAJobThatAsksForOtherResourcesThanTheOneBefore(t *testing.T) {
	for _, other := range []asks{{number: 3, memory: 9000, cores: 50}, {number: 3, memory: 9000}, {number: 3, cores: 50}, {number: 3}} {
		for _, name := range []string{"before", "zero"} {
			l := newMovesLab(t, oneToMove(t, nil, groupOf(name, 1), since(podOf(name, name, other), 0))...)
			for range 20 {
				l.tick()
			}
			if got := l.evictions(); !slices.Equal(got, []string{"a"}) || !l.isBound("new") || !l.isBound("a-1") {
				t.Errorf("%s asks for %+v: moved %v; new is bound: %v, a-1: %v", name, other, got, l.isBound("new"), l.isBound("a-1"))
			}
		}
	}
}

func TestPodsThatDoNotMove(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *corev1.Pod)
		more   func(t *testing.T) []runtime.Object
		then   func(l *lab)
		told   string
	}{
		"it does not say so":         {change: func(a *corev1.Pod) { delete(a.Annotations, wire.UserMayMove) }},
		"it says that it may not":    {change: func(a *corev1.Pod) { a.Annotations[wire.UserMayMove] = "false" }},
		"it is spared":               {change: func(a *corev1.Pod) { sparedPod(a) }},
		"nobody would make it again": {change: func(a *corev1.Pod) { a.OwnerReferences = nil }},
		"it is more important":       {then: func(l *lab) { l.cache.AddPodGroupV1beta1(important("high", "ma", 0)) }},
		"its job could not start":    {then: func(l *lab) { l.cache.AddPodGroupV1beta1(groupOf("ma", 2)) }},
		"a budget needs it":          {change: func(a *corev1.Pod) { labelled(a) }, then: func(l *lab) { l.addBudget(0) }, told: "No evictions help: pods are protected by PodDisruptionBudgets: ns/"},
		"it does not fit anywhere":   {more: func(t *testing.T) []runtime.Object { return []runtime.Object{on(t, "e", "others", "n2", 0, 6000)} }, told: "No moves help: no other places are free for pods that may move"},
		"it wants this device":       {change: func(a *corev1.Pod) { a.Annotations[wire.UserUseIDs] = "GPU-n1-0" }, told: "No moves help"},
		"another of its job waits": {more: func(t *testing.T) []runtime.Object {
			return []runtime.Object{movable(podOf("a2", "ma", asks{number: 1, memory: 9000}))}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var more []runtime.Object
			if c.more != nil {
				more = c.more(t)
			}
			l := newMovesLab(t, oneToMove(t, c.change, more...)...)
			if c.then != nil {
				c.then(l)
				l.caughtUp()
			}
			for range 20 {
				l.tick()
			}
			if got := l.evictions(); len(got) > 0 || l.isBound("new") {
				t.Errorf("evicted %v; new is bound: %v", got, l.isBound("new"))
			}
			if got := l.status.message("new"); !strings.Contains(got, c.told) {
				t.Errorf("told %q, want %q", got, c.told)
			}
		})
	}
}

// labelNamespace has the namespace of all pods say that they may move.
func (l *lab) labelNamespace() {
	l.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{wire.UserMayMove: "true"}}}
	if _, err := l.client.CoreV1().Namespaces().Create(l.t.Context(), ns, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
	l.eventually("the namespace is known", func() bool {
		_, err := l.cache.SharedInformerFactory().Core().V1().Namespaces().Lister().Get("ns")
		return err == nil
	})
}

func TestANamespaceSaysThatItsPodsMayMove(t *testing.T) {
	for says, moves := range map[string]bool{"": true, "false": false} {
		l := newMovesLab(t, oneToMove(t, func(a *corev1.Pod) {
			if a.Annotations[wire.UserMayMove] = says; says == "" {
				delete(a.Annotations, wire.UserMayMove)
			}
		})...)
		l.labelNamespace()
		for range 20 {
			l.tick()
		}
		if got := l.evictions(); (len(got) == 1 && got[0] == "a") != moves || l.isBound("new") != moves {
			t.Errorf("the pod says %q: evicted %v, new is bound: %v", says, got, l.isBound("new"))
		}
	}
}

// A pod that nobody needs to move any more stays where it is.
func TestAPodThatWasNotToldStaysIfNobodyWantsItsPlace(t *testing.T) {
	l := newMovesLab(t, oneToMove(t, nil)...)
	for range 9 {
		l.tick()
	}
	l.setLeads(false)
	l.tick()
	if l.store.room.Holds() != 2 {
		t.Fatalf("%d holds, want that of the pod that waits and that of the one that moves", l.store.room.Holds())
	}
	l.leave("new")
	l.end(l.pod("new"))
	for range 70 {
		l.tick()
	}
	l.setLeads(true)
	for range 5 {
		l.tick()
	}
	if got := l.evictions(); len(got) > 0 || l.store.room.Holds() != 0 {
		t.Errorf("evicted %v, %d holds are left", got, l.store.room.Holds())
	}
}

// A controller that ends the whole gang because one of its pods was ended finds all of its places.
func TestAGangOfWhichOnePodMovesFindsAllOfItsPlaces(t *testing.T) {
	l := newMovesLab(t,
		nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), nodeOf(t, devices("n3", 1, 10000)), groupOf("team", 2), groupOf("others", 0), groupOf("new", 1), groupOf("small", 0),
		withGrace(movable(on(t, "a", "team", "n1", 0, 6000)), 3), withGrace(movable(on(t, "z", "team", "n3", 0, 10000)), 3),
		on(t, "b", "others", "n2", 0, 3000), on(t, "c", "others", "n1", 1, 0), on(t, "d", "others", "n2", 1, 0),
		since(podOf("new", "new", asks{number: 1}), 0))
	for range 10 {
		l.tick()
	}
	if !slices.Equal(l.evictions(), []string{"a"}) {
		t.Fatalf("evicted %v", l.evictions())
	}
	l.leave("z") // its controller ends it
	for i := range 20 {
		l.add(since(podOf(fmt.Sprint("small", i), "small", asks{number: 1, memory: 5000}), l.seconds.Load()))
		l.tick()
	}
	where := map[string]string{}
	for _, pod := range l.pods() {
		where[strings.SplitN(pod.Name, "-", 2)[0]] = pod.Spec.NodeName
	}
	if where["a"] != "n2" || where["z"] != "n3" || where["new"] != "n1" {
		t.Errorf("bound to %v", where)
	}
}

// A gang that moves as a whole starts when the last of its successors has come. Their places are
// kept until then.
func TestSuccessorsOfAGangWaitForEachOtherInTheirPlaces(t *testing.T) {
	l := newMovesLab(t,
		nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("team", 2), groupOf("others", 0), groupOf("new", 1), groupOf("small", 0),
		withGrace(movable(on(t, "a", "team", "n1", 0, 6000)), 2), withGrace(movable(on(t, "z", "team", "n1", 1, 6000)), 8),
		on(t, "b", "others", "n2", 0, 3000), on(t, "d", "others", "n2", 1, 3000), since(podOf("new", "new", asks{number: 2}), 0))
	for i := range 40 {
		if l.tick(); i > 8 && i < 25 {
			l.add(since(podOf(fmt.Sprint("small", i), "small", asks{number: 1, memory: 5000}), l.seconds.Load()))
		}
	}
	where := map[string]string{}
	for _, pod := range l.pods() {
		where[strings.SplitN(pod.Name, "-", 2)[0]] = pod.Spec.NodeName
	}
	if where["a"] != "n2" || where["z"] != "n2" || where["new"] != "n1" || len(l.evictions()) != 2 {
		t.Errorf("evicted %v, bound to %v", l.evictions(), where)
	}
}

func TestAPodThatHasMovedIsLeftAlone(t *testing.T) {
	l := newMovesLab(t, append(oneToMove(t, nil), groupOf("next", 1))...)
	for !l.isBound("a-1") || !l.isBound("new") {
		if l.tick(); l.seconds.Load() > 40 {
			t.Fatalf("evicted %v", l.evictions())
		}
	}
	for _, name := range []string{"c", "new"} { // n1 is empty, n2 full
		l.mu.Lock()
		delete(l.replaced, name)
		l.mu.Unlock()
		l.end(l.pod(name))
	}
	l.add(since(on(t, "e", "others", "n1", 0, 3000), l.seconds.Load()))
	l.add(since(podOf("next", "next", asks{number: 2}), l.seconds.Load()))
	for range 40 {
		l.tick()
	}
	if got := l.evictions(); len(got) != 1 {
		t.Errorf("evicted %v", got)
	}
}

func TestArgumentsOfConsolidate(t *testing.T) {
	limits, mistakes := readMoveLimits(map[string]any{"after": "5m", "moves": 3, "jobs": 2, "rest": "2h"})
	if len(mistakes) > 0 || limits.After != 5*time.Minute || limits.Moves != 3 || limits.Jobs != 2 || limits.Rest != 2*time.Hour {
		t.Errorf("read as %+v, %q", limits, mistakes)
	}
	if limits, mistakes = readMoveLimits(nil); len(mistakes) > 0 || limits.After != time.Minute || limits.Moves != 8 {
		t.Errorf("without arguments %+v, %q", limits, mistakes)
	}
	_, mistakes = readMoveLimits(map[string]any{"after": "soon", "moves": 0, "rest": 7, "perHour": 30})
	want := []string{
		"configurations[consolidate].arguments.after: soon: want a duration such as 60s or 1h",
		"configurations[consolidate].arguments.moves: 0: want a number from 1 to 64",
		"configurations[consolidate].arguments.perHour: unknown argument: want after, jobs, moves or rest",
		"configurations[consolidate].arguments.rest: 7: want a duration",
	}
	if len(mistakes) != len(want) {
		t.Fatalf("mistakes %q, want %d", mistakes, len(want))
	}
	for i := range want {
		if !strings.HasPrefix(mistakes[i], want[i]) {
			t.Errorf("mistake %q, want %q", mistakes[i], want[i])
		}
	}
}

// Random clusters in which pods move, and pods that come and take what is free: whoever moved is
// bound where the sentence said, nobody else has to leave, and whoever they moved for is bound.
func TestPodsThatMoveFindTheirPlaces(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 6
	}
	moves := 0
	for seed := range seeds {
		moves += moveAtRandom(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if moves < int(seeds)/2 {
		t.Errorf("%d moves in %d clusters: the test shows little", moves, seeds)
	}
	t.Logf("%d moves", moves)
}

// isSuccessorUnknown reports whether a pod that moves is gone in the next second and its successor
// has no place yet: a scheduler that starts then cannot know of either.
func (l *lab) isSuccessorUnknown(first string) bool {
	for _, pod := range l.pods() {
		if strings.SplitN(pod.Name, "-", 2)[0] == first && pod.DeletionTimestamp != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.ends[pod.Name] <= l.seconds.Load()+1
		}
	}
	return true
}

func moveAtRandom(t *testing.T, seed uint64) (moves int) {
	r := rand.New(rand.NewPCG(seed, 77))
	objects := []runtime.Object{groupOf("new", 1), groupOf("small", 0), groupOf("fixed", 0)}
	nodes := 2 + r.IntN(3)
	for n := range nodes {
		node := fmt.Sprint("n", n+1)
		objects = append(objects, nodeOf(t, devices(node, 2, 10000)))
		for d := range 2 {
			name := fmt.Sprintf("p%d%d", n, d)
			group := []string{"loose", "team2", "fixed"}[r.IntN(3)]
			pod := withGrace(on(t, name, group, node, d, int64(2000+1000*r.IntN(5))), int64(1+r.IntN(5)))
			if group != "fixed" {
				movable(pod)
			}
			objects = append(objects, pod)
		}
	}
	team := 0
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok && pod.Annotations[schedulingv1beta1.KubeGroupNameAnnotationKey] == "team2" {
			team++
		}
	}
	l := newMovesLab(t, append(objects, groupOf("loose", 0), groupOf("team2", int32(max(0, team-r.IntN(2)))), since(podOf("new", "new", asks{number: int64(1 + r.IntN(2))}), 0))...)
	kept, promised := map[string]string{}, map[string]bool{} // kept by the first part of a pod's name
	for second := range 90 {
		if second > 9 && second < 40 && r.IntN(3) == 0 {
			l.add(since(podOf(fmt.Sprint("small", second), "small", asks{number: 1, memory: int64(1000 + 1000*r.IntN(6))}), l.seconds.Load()))
		}
		if second == 12+int(seed%7) && seed%3 == 0 {
			maps.DeleteFunc(kept, func(pod, _ string) bool { return l.isSuccessorUnknown(pod) })
			l.restart()
		}
		l.tick()
		for _, pod := range l.pods() {
			if _, node, moves := strings.Cut(disruption(&pod), "a place is kept for it on "); moves {
				kept[strings.SplitN(pod.Name, "-", 2)[0]] = node
				promised[pod.Name] = true
			}
		}
	}
	for _, pod := range l.evictions() {
		if !promised[pod] {
			t.Errorf("pod %s left and was promised no place", pod)
		}
	}
	for _, pod := range l.pods() {
		first := strings.SplitN(pod.Name, "-", 2)[0]
		if node := kept[first]; node != "" && pod.Spec.NodeName != node {
			t.Errorf("pod %s is on %q, and was promised a place on %s; told %q", pod.Name, pod.Spec.NodeName, node, l.status.message(pod.Name))
		}
	}
	if len(promised) > 0 && !l.isBound("new") {
		t.Errorf("%v moved in vain; told %q", kept, l.status.message("new"))
	}
	return len(promised)
}
