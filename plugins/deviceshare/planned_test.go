// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/plugins/gang"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"

	"deviceshare/sharing"
)

// planned is a cluster in which pod "new" of a priority class waits.
type planned struct {
	nodes  int
	class  string
	want   asks
	wish   [2]string // an annotation of pod "new"; "" for none
	others []runtime.Object
	// change is made before the first session.
	change func(*lab)
	// engine is that of the action preempt, "" for the default.
	engine string
	// evicted are the pods that have to leave; the pod is bound then, and only then.
	evicted []string
}

// on is a pod without special importance, with so many MiB of a device; 0 for all of it.
func on(t *testing.T, name, group, node string, device int, memory int64) *corev1.Pod {
	t.Helper()
	want, given := asks{number: 1, memory: memory}, share(sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, device)), memory)
	if memory == 0 {
		given.Memory, given.Whole = sharing.MiBs(10000), true
	}
	return withGrace(runningOn(t, podOf(name, group, want), node, given), 1)
}

func (c *planned) run(t *testing.T) {
	t.Helper()
	objects := append([]runtime.Object{groupOf("low", 0), important(c.class, "new", 1)}, c.others...)
	for n := range c.nodes {
		objects = append(objects, nodeOf(t, devices(fmt.Sprint("n", n+1), 2, 10000)))
	}
	waits := podOf("new", "new", c.want)
	if c.wish[0] != "" {
		waits.Annotations[c.wish[0]] = c.wish[1]
	}
	l := newLab(t, append(objects, waits)...)
	l.world.actions = []conf.Configuration{{Name: "preempt", Arguments: map[string]any{}}}
	if c.engine != "" {
		l.world.actions[0].Arguments["engine"] = c.engine
	}
	if c.change != nil {
		c.change(l)
		l.caughtUp()
	}
	l.requireEvicted(6, c.evicted)
}

// requireEvicted lets seconds pass. Pod "new" is to be bound if pods had to leave, and only then.
func (l *lab) requireEvicted(seconds int, want []string) {
	l.t.Helper()
	for range seconds {
		l.tick()
	}
	evicted := l.evictions()
	slices.Sort(evicted)
	if !slices.Equal(evicted, want) || l.isBound("new") != (len(want) > 0) {
		l.t.Errorf("evicted %v, want %v; bound: %v; told %q", evicted, want, l.isBound("new"), l.status.message("new"))
	}
}

// sparedPod makes the pod one that is never evicted.
func sparedPod(pod *corev1.Pod) *corev1.Pod {
	pod.Annotations[schedulingv1beta1.PodPreemptable] = "false"
	return pod
}

// Volcano counts sums: the ten shares of each device always have room.
func TestAWholeDeviceIsClearedWhateverTheSumsSay(t *testing.T) {
	roomy := func(t *testing.T) []runtime.Object {
		return []runtime.Object{
			sparedPod(on(t, "a", "low", "n1", 0, 1000)), sparedPod(on(t, "b", "low", "n1", 1, 1000)),
			on(t, "c", "low", "n2", 0, 1000), sparedPod(on(t, "d", "low", "n2", 1, 1000)),
		}
	}
	for name, c := range map[string]planned{
		"on the node behind a roomy one": {evicted: []string{"c"}},
		"not by Volcano":                 {engine: "volcano"},
		"by nobody who is not known":     {engine: "vulcano"},
	} {
		t.Run(name, func(t *testing.T) {
			c.nodes, c.class, c.want, c.others = 2, "high", asks{number: 1}, roomy(t)
			c.run(t)
		})
	}
}

func TestLessImportantPodsLeaveFirst(t *testing.T) {
	c := planned{nodes: 1, class: "top", want: asks{number: 1}, evicted: []string{"b", "c"}, others: []runtime.Object{
		important("high", "mid", 0), on(t, "a", "mid", "n1", 0, 0), on(t, "b", "low", "n1", 1, 4000), on(t, "c", "low", "n1", 1, 4000)}}
	c.run(t)
}

func TestTheFewestPodsLeave(t *testing.T) {
	c := planned{nodes: 1, class: "high", want: asks{number: 1}, evicted: []string{"f", "g"},
		others: []runtime.Object{on(t, "f", "low", "n1", 1, 5000), on(t, "g", "low", "n1", 1, 5000)}}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		c.others = append(c.others, on(t, name, "low", "n1", 0, 2000))
	}
	c.run(t)
}

// keepsNoGangs has plugin gang leave to the planner which gangs go.
func keepsNoGangs(l *lab) {
	for i := range l.tiers[0].Plugins {
		if o := &l.tiers[0].Plugins[i]; o.Name == gang.PluginName {
			off := false
			o.EnabledPreemptable = &off
		}
	}
}

func TestAGangIsBrokenOnlyIfNoSinglePodWouldDoAndThenLeavesAsAWhole(t *testing.T) {
	for name, c := range map[string]planned{
		"a single pod would do": {change: keepsNoGangs, evicted: []string{"c"},
			others: []runtime.Object{on(t, "c", "low", "n2", 0, 0), sparedPod(on(t, "d", "low", "n2", 1, 0))}},
		"it would not": {change: keepsNoGangs, evicted: []string{"a", "b"},
			others: []runtime.Object{sparedPod(on(t, "c", "low", "n2", 0, 0)), sparedPod(on(t, "d", "low", "n2", 1, 0))}},
		"plugin gang keeps gangs": {
			others: []runtime.Object{sparedPod(on(t, "c", "low", "n2", 0, 0)), sparedPod(on(t, "d", "low", "n2", 1, 0))}},
		"plugin gang keeps gangs, and another pod would do": {evicted: []string{"c", "d"},
			others: []runtime.Object{on(t, "c", "low", "n2", 0, 4000), on(t, "d", "low", "n2", 0, 4000), sparedPod(on(t, "e", "low", "n2", 1, 0))}},
	} {
		t.Run(name, func(t *testing.T) {
			c.nodes, c.class, c.want = 2, "high", asks{number: 1}
			c.others = append(c.others, groupOf("team", 2), on(t, "a", "team", "n1", 0, 0), on(t, "b", "team", "n1", 1, 0))
			c.run(t)
		})
	}
}

// labelled makes the pod one that the budget of addBudget counts.
func labelled(pod *corev1.Pod) *corev1.Pod {
	pod.Labels = map[string]string{"app": "web"}
	return pod
}

// addBudget adds a PodDisruptionBudget that lets so many more pods leave.
func (l *lab) addBudget(allowed int32) { l.addBudgetNamed("web", allowed) }

func (l *lab) addBudgetNamed(name string, allowed int32) {
	l.t.Helper()
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed}}
	if _, err := l.client.PolicyV1().PodDisruptionBudgets("ns").Create(l.t.Context(), pdb, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
	l.eventually("the budget is known", func() bool {
		_, err := l.cache.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister().PodDisruptionBudgets("ns").Get(name)
		return err == nil
	})
}

func TestVictimsThatAreNotSentYetCountInABudget(t *testing.T) {
	l := newLab(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("low", 0), important("high", "new", 1), important("high", "new2", 1),
		labelled(on(t, "a", "low", "n1", 0, 0)), labelled(on(t, "b", "low", "n1", 1, 0)),
		podOf("new", "new", asks{number: 1}), podOf("new2", "new2", asks{number: 1}))
	l.addBudget(1)
	l.setLeads(false) // nothing is sent
	for range 3 {
		l.tick()
		if n := l.store.room.Unanswered(); n != 1 {
			t.Fatalf("%d evictions are ordered, the budget allows 1", n)
		}
	}
}

func TestNoPlanBreaksABudget(t *testing.T) {
	for name, c := range map[string]struct {
		allowed int32
		planned
	}{
		"which is used up":        {planned: planned{others: []runtime.Object{labelled(on(t, "a", "low", "n1", 0, 0)), sparedPod(on(t, "z", "low", "n1", 1, 0))}}},
		"which allows one pod":    {allowed: 1, planned: planned{others: []runtime.Object{labelled(on(t, "a", "low", "n1", 0, 0)), sparedPod(on(t, "z", "low", "n1", 1, 0))}, evicted: []string{"a"}}},
		"which allows one of two": {allowed: 1, planned: planned{others: []runtime.Object{labelled(on(t, "a", "low", "n1", 0, 4000)), labelled(on(t, "b", "low", "n1", 0, 4000)), sparedPod(on(t, "z", "low", "n1", 1, 0))}}},
		"other pods leave, though more": {planned: planned{evicted: []string{"b", "c"},
			others: []runtime.Object{labelled(on(t, "a", "low", "n1", 0, 0)), on(t, "b", "low", "n1", 1, 4000), on(t, "c", "low", "n1", 1, 4000)}}},
		"of other pods": {planned: planned{others: []runtime.Object{on(t, "a", "low", "n1", 0, 0), sparedPod(on(t, "z", "low", "n1", 1, 0))}, evicted: []string{"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.nodes, c.class, c.want = 1, "high", asks{number: 1}
			c.change = func(l *lab) { l.addBudget(c.allowed) }
			c.run(t)
		})
	}
}

// The API server refuses to evict a pod that two budgets count, whatever they allow.
func TestAPodOfTwoBudgetsIsNoVictim(t *testing.T) {
	for name, c := range map[string]planned{
		"other pods leave, though more": {evicted: []string{"b", "c"},
			others: []runtime.Object{labelled(on(t, "a", "low", "n1", 0, 0)), on(t, "b", "low", "n1", 1, 4000), on(t, "c", "low", "n1", 1, 4000)}},
		"nobody else could": {others: []runtime.Object{labelled(on(t, "a", "low", "n1", 0, 0)), sparedPod(on(t, "z", "low", "n1", 1, 0))}},
	} {
		t.Run(name, func(t *testing.T) {
			c.nodes, c.class, c.want = 1, "high", asks{number: 1}
			c.change = func(l *lab) {
				l.addBudgetNamed("web", 1)
				l.addBudgetNamed("also-web", 1)
			}
			c.run(t)
		})
	}
}

func TestAPodIsToldWhyNoEvictionsHelp(t *testing.T) {
	for name, c := range map[string]struct {
		victim *corev1.Pod
		want   string
		more   string
	}{
		"two budgets protect who could leave": {labelled(on(t, "a", "low", "n1", 0, 0)),
			"No evictions help: pods are protected by PodDisruptionBudgets: ns/also-web and ns/web at once.", "also-web"},
		"a budget protects who could leave": {labelled(on(t, "a", "low", "n1", 0, 0)), "No evictions help: pods are protected by PodDisruptionBudgets: ns/web.", ""},
		"nobody may leave":                  {sparedPod(on(t, "a", "low", "n1", 0, 0)), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("low", 0), important("high", "new", 1), c.victim,
				podOf("new", "new", asks{number: 1}), important("high", "next", 1), podOf("next", "next", asks{number: 1}))
			if l.addBudget(0); c.more != "" {
				l.addBudgetNamed(c.more, 1)
			}
			l.tick()
			for _, pod := range []string{"new", "next"} { // the second is of the kind of the first
				got := l.status.message(pod)
				if got == "" || !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "evictions") {
					t.Errorf("pod %s is told %q, want %q in it", pod, got, c.want)
				}
			}
		})
	}
}

// Pods that no job of this scheduler has make plugins panic when they are evicted. Others come back
// to the same node, or the cluster needs them.
func TestPodsThatAreNeverEvicted(t *testing.T) {
	yes := true
	for name, change := range map[string]func(*corev1.Pod){
		"of another scheduler": func(p *corev1.Pod) {
			p.Spec.SchedulerName = "another"
			delete(p.Annotations, schedulingv1beta1.KubeGroupNameAnnotationKey)
		},
		"without a group": func(p *corev1.Pod) { delete(p.Annotations, schedulingv1beta1.KubeGroupNameAnnotationKey) },
		"of a DaemonSet": func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", Controller: &yes}}
		},
		"static":                func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "hash" },
		"critical":              func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" },
		"told to be spared":     func(p *corev1.Pod) { sparedPod(p) },
		"of the same priority":  func(p *corev1.Pod) { p.Annotations[schedulingv1beta1.KubeGroupNameAnnotationKey] = "equal" },
		"not of lower priority": func(p *corev1.Pod) { p.Annotations[schedulingv1beta1.KubeGroupNameAnnotationKey] = "higher" },
	} {
		t.Run(name, func(t *testing.T) {
			stays := on(t, "a", "low", "n1", 0, 9900)
			change(stays)
			c := planned{nodes: 1, class: "high", want: asks{number: 1}, evicted: []string{"b"}, others: []runtime.Object{
				important("high", "equal", 0), important("top", "higher", 0), stays, on(t, "b", "low", "n1", 1, 9900)},
				change: func(l *lab) { l.oneTier(proportion.PluginName) }}
			c.run(t)
			c.want, c.evicted = asks{number: 2}, nil
			c.others[3] = on(t, "b", "low", "n1", 1, 9900)
			c.run(t)
		})
	}
}

// Where plugin gang is not used, a job may give the place of a pod to a more important one.
func TestAPodTakesThePlaceOfALessImportantOneOfItsJob(t *testing.T) {
	withPriority := func(pod *corev1.Pod, priority int32) *corev1.Pod {
		pod.Spec.Priority = &priority
		return pod
	}
	for own, evicted := range map[int32][]string{5: {"a"}, 1: {}} {
		l := newLab(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("job", 0), withPriority(on(t, "a", "job", "n1", 0, 0), 1),
			withPriority(on(t, "b", "job", "n1", 1, 0), 9), withPriority(podOf("new", "job", asks{number: 1}), own))
		l.tiers[0].Plugins = slices.DeleteFunc(l.tiers[0].Plugins, func(o conf.PluginOption) bool { return o.Name == gang.PluginName })
		for range 6 {
			l.tick()
		}
		if got := l.evictions(); !slices.Equal(got, evicted) || l.isBound("new") != (len(evicted) > 0) {
			t.Errorf("priority %d: evicted %v, want %v; bound: %v", own, got, evicted, l.isBound("new"))
		}
	}
}

func TestAPodThatPreemptsNobodyWaits(t *testing.T) {
	never := corev1.PreemptNever
	c := planned{nodes: 1, class: "high", want: asks{number: 2}, others: []runtime.Object{on(t, "a", "low", "n1", 0, 0)}, change: func(l *lab) {
		l.changePod("new", func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &never })
		l.eventually("the policy is known", func() bool {
			l.cache.Mutex.Lock()
			defer l.cache.Mutex.Unlock()
			p := l.cache.Jobs["ns/new"].Tasks["uid-new"].Pod.Spec.PreemptionPolicy
			return p != nil && *p == never
		})
	}}
	c.run(t)
}

// A port is in use that no evictions free: only a trial in the session knows.
func TestAPlanThatOtherPluginsRefuseIsMadeForAnotherNode(t *testing.T) {
	withPort := func(pod *corev1.Pod) *corev1.Pod {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: corev1.ProtocolTCP}}
		return pod
	}
	for name, want := range map[string]asks{"that would have to be cleared": {number: 1}, "that has room": {number: 1, memory: 6000}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("low", 0), important("high", "new", 1),
				withPort(sparedPod(on(t, "a", "low", "n1", 0, 1000))), on(t, "b", "low", "n1", 1, 9000),
				on(t, "c", "low", "n2", 0, 4000), on(t, "d", "low", "n2", 0, 4000), sparedPod(on(t, "e", "low", "n2", 1, 9000)),
				withPort(podOf("new", "new", want)))
			l.with("predicates")
			for range 6 {
				l.tick()
			}
			evicted := l.evictions()
			if slices.Sort(evicted); len(evicted) != 2-int(want.memory/6000) || slices.Contains(evicted, "b") || l.pod("new").Spec.NodeName != "n2" {
				t.Errorf("evicted %v, bound to %q; told %q", evicted, l.pod("new").Spec.NodeName, l.status.message("new"))
			}
		})
	}
}

// Pods that nobody can help do not keep others from being looked at.
func TestASessionGoesOnWhereTheLastOneStopped(t *testing.T) {
	objects := []runtime.Object{nodeOf(t, devices("n1", 2, 10000)), groupOf("low", 0), on(t, "a", "low", "n1", 0, 0), sparedPod(on(t, "b", "low", "n1", 1, 5000)),
		important("high", "new", 1), podOf("new", "new", asks{number: 1})}
	for i := range 100 { // each of another kind
		name := fmt.Sprint("hopeless", i)
		objects = append(objects, important("top", name, 1), podOf(name, name, asks{number: 2, memory: 9000 + int64(i)}))
	}
	l := newLab(t, objects...)
	for range 6 {
		l.tick()
	}
	if !l.isBound("new") {
		t.Errorf("evicted %v; told %q", l.evictions(), l.status.message("new"))
	}
}

// Members of a gang leave from nodes on which nothing is kept. A scheduler that has just started
// knows where the room is made.
func TestTheRoomOfAGangIsFoundAgainAfterARestart(t *testing.T) {
	for at := 1; at <= 3; at++ {
		l := newLab(t, nodeOf(t, devices("n1", 1, 10000)), nodeOf(t, devices("n2", 1, 10000)), groupOf("team", 2), important("high", "new", 1),
			withGrace(on(t, "a", "team", "n1", 0, 0), 4), withGrace(on(t, "b", "team", "n2", 0, 0), 2), podOf("new", "new", asks{number: 1}))
		keepsNoGangs(l)
		for range at {
			l.tick()
		}
		promised := l.pod("new").Status.NominatedNodeName
		l.restart()
		took := l.ticksUntilBound("new", 20)
		if evicted := l.evictions(); len(evicted) != 2 || took > 6 || promised == "" || l.pod("new").Spec.NodeName != promised {
			t.Errorf("restarted after %d s: evicted %v, promised %q, bound to %q %d s later", at, evicted, promised, l.pod("new").Spec.NodeName, took)
		}
	}
}
