// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/backfill"
	"volcano.sh/volcano/pkg/scheduler/actions/enqueue"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/plugins/deviceshare/room"
)

// staggered is a node with two devices, whose pods end one after the other and are made again, and
// a pod that wants both.
func staggered(t *testing.T) []runtime.Object {
	return []runtime.Object{nodeOf(t, devices("n1", 2, 10000)), groupOf("low", 0), important("high", "high", 1),
		withGrace(lowOn(t, "a", "low", "GPU-n1-0", 9900, 0), 1), withGrace(lowOn(t, "b", "low", "GPU-n1-1", 9900, 0), 4),
		podOf("new", "high", asks{number: 2, memory: 9950})}
}

// Volcano remembers nothing: pods are evicted every few seconds for one that is never placed.
func TestVolcanoAloneEvictsAgainAndAgain(t *testing.T) {
	told := ""
	for range 5 { // Volcano finds the pod a place by chance, seldom
		l := newLabOf(t, true, staggered(t)...)
		l.replaced["a"], l.replaced["b"] = true, true
		took := l.ticksUntilBound("new", 30)
		evicted := l.evictions()
		if len(evicted) >= 6 && took == 30 {
			return
		}
		told += fmt.Sprintf("%d evictions, bound after %d s; ", len(evicted), took)
	}
	t.Errorf("%sif Volcano keeps what it cleared now, holds may be superfluous", told)
}

func TestWhatWasClearedForAPodIsKeptForItWhoeverChooses(t *testing.T) {
	for _, engine := range []room.Engine{room.Planner, room.Volcano} {
		l := newLab(t, staggered(t)...)
		l.world.actions[0].Arguments["engine"] = string(engine)
		l.replaced["a"], l.replaced["b"] = true, true
		took := l.ticksUntilBound("new", 30)
		if evicted := l.evictions(); len(evicted) != 2 || took > 8 {
			t.Errorf("%s: %d evictions (%v), bound after %d s: want 2, and at most 8 s", engine, len(evicted), evicted, took)
		}
	}
}

func TestAPodIsToldForWhomItWaits(t *testing.T) {
	l := newLab(t, staggered(t)...)
	l.tick()
	l.tick()
	got := l.status.message("new")
	if !strings.Contains(got, "starts on node n1 when these pods have left") || !strings.Contains(got, "ns/b") {
		t.Errorf("told %q", got)
	}
	if n := l.pod("new").Status.NominatedNodeName; n != "n1" {
		t.Errorf("nominated node %q", n)
	}
	victim := l.pod("b")
	said := ""
	for _, c := range victim.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			said = c.Message
		}
	}
	if !strings.Contains(said, "makes room on n1 for ns/new (priority 100, this one 0)") {
		t.Errorf("the victim was told %q", said)
	}
	if events := strings.Join(l.report.all(), "\n"); !strings.Contains(events, "Pod b: Preempted: makes room on n1 for ns/new") {
		t.Errorf("events: %s", events)
	}
}

// One device can be cleared, the gang needs two: Volcano tried, gave up, and told the pod in each
// session that it can possibly be assigned.
func TestAPodIsPromisedOnlyWhatIsCleared(t *testing.T) {
	stays := lowOn(t, "b", "low", "GPU-n1-1", 9900, 0)
	stays.Annotations[schedulingv1beta1.PodPreemptable] = "false"
	l := newLab(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("low", 0), important("high", "high", 2),
		lowOn(t, "a", "low", "GPU-n1-0", 9900, 0), stays, podOf("new", "high", asks{number: 1, memory: 9950}), podOf("new2", "high", asks{number: 1, memory: 9950}))
	for range 5 {
		l.tick()
	}
	for _, pod := range []string{"new", "new2"} {
		if got := l.status.message(pod); strings.Contains(got, "can possibly be assigned") || l.pod(pod).Status.NominatedNodeName != "" {
			t.Errorf("pod %s was told %q, nominated %q", pod, got, l.pod(pod).Status.NominatedNodeName)
		}
	}
	if len(l.evictions()) != 0 {
		t.Errorf("evicted %v", l.evictions())
	}
}

// Sums over the cluster keep out whoever names memory on a full cluster.
func TestOvercommitKeepsNobodyOutForWhomRoomCanBeMade(t *testing.T) {
	want := asks{number: 1, memory: 9000}
	for class, placed := range map[string]bool{"high": true, "": false} {
		t.Run("priority class "+class, func(t *testing.T) {
			g := wants(important(class, "new", 1), want)
			g.Status.Phase = schedulingv1beta1.PodGroupPending
			l := newLab(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("low", 0), g,
				withGrace(lowOn(t, "a", "low", "GPU-n1-0", 9900, 0), 2), podOf("new", "new", want))
			var phases []schedulingv1beta1.PodGroupPhase
			for range 8 {
				l.tick()
				now, err := l.cache.VCClient().SchedulingV1beta1().PodGroups("ns").Get(t.Context(), "new", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				phases = append(phases, now.Status.Phase)
			}
			if l.isBound("new") != placed {
				t.Errorf("bound: %v, want %v; told %q", l.isBound("new"), placed, l.status.message("new"))
			}
			if compact := slices.Compact(slices.Clone(phases)); !placed && !slices.Equal(compact, []schedulingv1beta1.PodGroupPhase{schedulingv1beta1.PodGroupPending}) {
				t.Errorf("the group went through phases %v", phases)
			}
		})
	}
}

// Volcano takes a pod for evicted whose status was written, although the deletion failed.
func TestAVictimIsNotForgottenWhenItsDeletionFails(t *testing.T) {
	l := newLab(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("low", 0), important("high", "high", 1),
		withGrace(lowOn(t, "a", "low", "GPU-n1-0", 9900, 0), 1), podOf("new", "high", asks{number: 1, memory: 9950}))
	l.failing["a"] = 2
	if took := l.ticksUntilBound("new", 20); took == 20 {
		t.Errorf("not bound, evicted %v", l.evictions())
	}
}

func TestNobodyIsSentAwayForAPodThatIsGone(t *testing.T) {
	l := newLab(t, staggered(t)...)
	l.setLeads(false) // nothing can be sent yet
	l.tick()
	if n := l.store.room.Unanswered(); n != 2 {
		t.Fatalf("%d evictions are ordered, want 2", n)
	}
	l.endPod("new")
	l.caughtUp()
	for range 62 { // another pod of its job might come
		l.tick()
	}
	l.setLeads(true)
	l.caughtUp()
	if evicted := l.evictions(); len(evicted) != 0 || l.pod("a") == nil || l.pod("b") == nil {
		t.Errorf("evicted %v", evicted)
	}
}

// A scheduler that has just started knows from the API server what was cleared and for whom.
func TestHoldsSurviveARestart(t *testing.T) {
	for at := 1; at <= 5; at++ {
		l := newLab(t, staggered(t)...)
		l.replaced["a"], l.replaced["b"] = true, true
		for range at {
			l.tick()
		}
		l.restart()
		took := l.ticksUntilBound("new", 30)
		if evicted := l.evictions(); len(evicted) != 2 || took > 8 {
			t.Errorf("restarted after %d s: %d evictions (%v), bound %d s later", at, len(evicted), evicted, took)
		}
	}
}

func TestAMoreImportantPodTakesThePlaceWithoutFurtherEvictions(t *testing.T) {
	objects := append(staggered(t), important("top", "top", 1))
	l := newLab(t, objects...)
	l.tick()
	l.create(podOf("first", "top", asks{number: 2, memory: 9950}))
	took := l.ticksUntilBound("first", 30)
	if evicted := l.evictions(); len(evicted) != 2 || took > 8 || l.isBound("new") {
		t.Errorf("%d evictions (%v), bound after %d s, the less important one is bound: %v", len(evicted), evicted, took, l.isBound("new"))
	}
	if n := l.pod("new").Status.NominatedNodeName; n != "" {
		t.Errorf("the pod that lost its place still has the nominated node %s", n)
	}
}

func TestAPodNamesNoNodeOnWhichNothingIsKept(t *testing.T) {
	l := newLab(t, staggered(t)...)
	l.with("predicates") // which keep pods off a node that is cordoned
	l.tick()
	l.tick()
	if l.pod("new").Status.NominatedNodeName != "n1" {
		t.Fatalf("nominated %q", l.pod("new").Status.NominatedNodeName)
	}
	node := nodeOf(t, devices("n1", 2, 10000))
	node.Spec.Unschedulable = true
	l.publish(node)
	l.eventually("Volcano has seen the cordon", func() bool {
		l.cache.Mutex.Lock()
		defer l.cache.Mutex.Unlock()
		return l.cache.Nodes["n1"].Node.Spec.Unschedulable
	})
	l.tick()
	if n := l.pod("new").Status.NominatedNodeName; n != "" {
		t.Errorf("the node is cordoned, and the pod still has the nominated node %s", n)
	}
}

func TestAConfigurationWithoutTheActionsEvictsNobody(t *testing.T) {
	want := asks{number: 1, memory: 9000}
	g := wants(important("high", "new", 1), want)
	g.Status.Phase = schedulingv1beta1.PodGroupPending
	l := newLab(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("low", 0), g, lowOn(t, "a", "low", "GPU-n1-0", 9900, 0), podOf("new", "new", want))
	l.actions = []framework.Action{enqueue.New(), allocate.New(), backfill.New()}
	for range 5 {
		l.tick()
	}
	if evicted := l.evictions(); len(evicted) != 0 || l.isBound("new") {
		t.Errorf("evicted %v", evicted)
	}
}

// A controller makes the pods of a Volcano Job when its group was let in.
func TestOvercommitLetsInAJobWithoutPodsForWhichRoomCanBeMade(t *testing.T) {
	want := asks{number: 1, memory: 9000}
	for name, c := range map[string]struct {
		class string
		want  asks
		in    bool
	}{
		"more important than the pod that is there": {"high", want, true},
		"as important":              {"", want, false},
		"more than the cluster has": {"high", asks{number: 1, memory: 90000}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := wants(important(c.class, "new", 1), c.want)
			g.Status.Phase = schedulingv1beta1.PodGroupPending
			l := newLab(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("low", 0), g, withGrace(lowOn(t, "a", "low", "GPU-n1-0", 9900, 0), 1))
			for range 3 {
				l.tick()
			}
			now, err := l.cache.VCClient().SchedulingV1beta1().PodGroups("ns").Get(t.Context(), "new", metav1.GetOptions{})
			if err != nil || (now.Status.Phase == schedulingv1beta1.PodGroupInqueue) != c.in {
				t.Fatalf("phase %v, want let in: %v (%v)", now.Status.Phase, c.in, err)
			}
			if c.in {
				l.create(podOf("new", "new", c.want))
				if took := l.ticksUntilBound("new", 10); took == 10 || len(l.evictions()) != 1 {
					t.Errorf("bound after %d s, evicted %v", took, l.evictions())
				}
			}
		})
	}
}

// Volcano evicted one more pod in each session while the first one ended.
func TestReclaimEvictsOnlyWhatThePodNeeds(t *testing.T) {
	scarce := devices("n1", 4, 10000)
	for i := range scarce.Devices {
		scarce.Devices[i].MaxShares = 1 // the sums as written are short as well
	}
	objects := []runtime.Object{nodeOf(t, scarce), groupIn("theirs", "old", 0), groupIn("mine", "new", 1), podOf("new", "new", asks{number: 1})}
	for i := range 4 {
		objects = append(objects, withGrace(wholeOn(t, fmt.Sprintf("old%d", i), "old", i, 1), 5))
	}
	l := newLab(t, objects...)
	for _, name := range []string{"mine", "theirs"} {
		q := queueBelow(t, name, "", "")
		q.Spec.Deserved = amountsOf(t, "number=2")
		l.cache.AddQueueV1beta1(q)
	}
	l.oneTier(proportion.PluginName)
	took := l.ticksUntilBound("new", 20)
	if evicted := l.evictions(); len(evicted) != 1 || took > 10 {
		t.Errorf("evicted %v, bound after %d s", evicted, took)
	}
	if events := strings.Join(l.report.all(), "\n"); !strings.Contains(events, ": Reclaimed: makes room on n1 for ns/new, whose queue has less than it deserves") {
		t.Errorf("events: %s", events)
	}
}

// A pod of another scheduler has no job, and plugins panic when a session evicts it, or a pod
// twice.
func TestAnUpgradeOrAForgeryMakesNoSessionPanic(t *testing.T) {
	foreign := boundTo(podOf("foreign", "", asks{}), "n1")
	delete(foreign.Annotations, schedulingv1beta1.KubeGroupNameAnnotationKey)
	foreign.Spec.SchedulerName = "another"
	target := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		Message: holds.Reason{For: "ns/new", Node: "n1", Priority: 100}.String()}
	foreign.Status.Conditions = append(foreign.Status.Conditions, target)
	l := newLab(t, append(staggered(t), foreign)...)
	l.oneTier(proportion.PluginName)
	l.changePod("a", func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, target) })
	l.leave("a")
	l.caughtUp()
	if took := l.ticksUntilBound("new", 20); took == 20 || l.pod("foreign") == nil {
		t.Errorf("bound after %d s, evicted %v", took, l.evictions())
	}
}
