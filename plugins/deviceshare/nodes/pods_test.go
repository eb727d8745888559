// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"errors"
	"iter"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	clientcache "k8s.io/client-go/tools/cache"

	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// seen is a snapshot made of literals.
type seen struct {
	hosts    []Host
	assigned map[string]*corev1.Pod // by job and node
	api      []*corev1.Pod          // the pods of the API server
}

func shows(hosts ...Host) *seen { return &seen{hosts: hosts} }

func (s *seen) Hosts() []Host { return s.hosts }

func (s *seen) Host(name string) Host {
	for _, h := range s.hosts {
		if h.Name() == name {
			return h
		}
	}
	return nil
}

func (s *seen) Assigned(job string, pod types.UID, node string) *corev1.Pod {
	if p := s.assigned[job+" "+node]; p != nil && p.UID == pod {
		return p
	}
	return nil
}

func (s *seen) Pods() corelisters.PodLister {
	index := clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc, clientcache.Indexers{})
	for _, p := range s.api {
		if err := index.Add(p); err != nil {
			panic(err)
		}
	}
	return corelisters.NewPodLister(index)
}

// populated is a node that shows pods.
type populated struct {
	node *corev1.Node
	pods []*corev1.Pod
}

func podsOn(name string, pods ...*corev1.Pod) populated {
	return populated{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, pods: pods}
}

func (p populated) Name() string       { return p.node.Name }
func (p populated) Node() *corev1.Node { return p.node }
func (p populated) Len() int           { return len(p.pods) }

func (p populated) ShowsExactly(pods map[string]*corev1.Pod) bool {
	for key, pod := range p.Pods() {
		if pods[key] != pod {
			return false
		}
	}
	return len(pods) == p.Len()
}

func (p populated) Pods() iter.Seq2[string, *corev1.Pod] {
	return func(yield func(string, *corev1.Pod) bool) {
		for _, pod := range p.pods {
			if !yield(nameOf(pod).String(), pod) {
				return
			}
		}
	}
}

func (p populated) Pod(name types.NamespacedName) *corev1.Pod {
	for _, pod := range p.pods {
		if nameOf(pod) == name {
			return pod
		}
	}
	return nil
}

// podNamed is a pod that the API server has bound to n1.
func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{wire.PodPlacement: "text"}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
}

// A decision is handed over, its bind call begins and returns, and snapshots come
// in between. What a snapshot without the pod means depends on when it comes.
func TestASnapshotWithoutThePodGivesUpWhatHasNotBegunAndWaitsForWhatHas(t *testing.T) {
	empty := shows(podsOn("n1"))
	failed := errors.New("lost")
	type step struct {
		do    string // snapshot, begin, end, fail, withdraw, assume
		holds int    // placements that count on n1 afterwards
		known int    // assumptions afterwards
		err   error  // of begin
	}
	for name, steps := range map[string][]step{
		"a PreBind failed, or the pod was deleted before the call": {
			{do: "snapshot", known: 1}, {do: "snapshot"},
		},
		"a PreBind failed and the pod is tried again": {
			{do: "snapshot", known: 1}, {do: "assume", holds: 1, known: 1}, {do: "begin", holds: 1, known: 1}, {do: "end", known: 1}, {do: "snapshot"},
		},
		"the call begins after it was given up": {
			{do: "snapshot", known: 1}, {do: "begin", known: 1, err: podstate.ErrWithdrawn}, {do: "snapshot"},
		},
		"the call begins between two snapshots that give up and forget": {
			{do: "snapshot", known: 1}, {do: "begin", known: 1, err: podstate.ErrWithdrawn}, {do: "snapshot"}, {do: "begin"},
		},
		"the call has begun: only its answer tells": {
			{do: "begin", holds: 1, known: 1}, {do: "snapshot", holds: 1, known: 1}, {do: "snapshot", holds: 1, known: 1},
			{do: "fail", known: 1}, {do: "snapshot"},
		},
		"the pod is deleted while the call is under way": {
			{do: "begin", holds: 1, known: 1}, {do: "snapshot", holds: 1, known: 1}, {do: "end", known: 1}, {do: "snapshot"},
		},
		"a session gives up what has not begun": {
			{do: "withdraw", known: 1}, {do: "begin", known: 1, err: podstate.ErrWithdrawn}, {do: "snapshot"},
		},
		"a session cannot give up what has begun": {
			{do: "begin", holds: 1, known: 1}, {do: "withdraw", holds: 1, known: 1}, {do: "snapshot", holds: 1, known: 1}, {do: "end", known: 1}, {do: "snapshot"},
		},
		"a call of an earlier attempt begins after the next was decided": {
			{do: "snapshot", known: 1}, {do: "assume", holds: 1, known: 1}, {do: "begin", holds: 1, known: 1},
			{do: "fail", known: 1}, {do: "begin", holds: 1, known: 1}, {do: "snapshot", holds: 1, known: 1}, {do: "end", known: 1}, {do: "snapshot"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, pod := newPods(), podNamed("p")
			assume := func() {
				a.Decide(Handover{Pod: pod}, podstate.Decision{Node: "n1", Placement: sharing.Placement{Node: "n1"}})
			}
			assume()
			for i, s := range steps {
				var err error
				switch s.do {
				case "snapshot":
					a.compareDecisions(empty)
				case "begin":
					_, _, err = a.BeginBind(pod, "n1")
				case "end":
					a.EndBind("uid-p", "n1", nil)
				case "fail":
					a.EndBind("uid-p", "n1", failed)
				case "withdraw":
					a.Withdraw("uid-p")
				case "assume":
					assume()
				}
				if got := len(a.underwayTo("n1")); got != s.holds || a.Decisions() != s.known || !errors.Is(err, s.err) {
					t.Fatalf("after step %d (%s): %d count and %d are known, error %v; want %d, %d, %v", i, s.do, got, a.Decisions(), err, s.holds, s.known, s.err)
				}
				if s.do == "snapshot" && len(a.touchedNodes()) == 0 && s.known == 0 {
					t.Fatalf("after step %d: the node would not be read anew", i)
				}
			}
		})
	}
}

func TestTheAnswerOfAnotherNodeMeansNothing(t *testing.T) {
	states, pod := newPods(), podNamed("p")
	states.Decide(Handover{Pod: pod}, podstate.Decision{Node: "n1"})
	if _, _, err := states.BeginBind(pod, "n1"); err != nil {
		t.Fatal(err)
	}
	states.EndBind("uid-p", "n2", nil)
	if got := states.State("uid-p").Phase(); got != podstate.Calling {
		t.Errorf("phase %v", got)
	}
}

func TestAnAssumptionOnANodeThatIsNotInTheSnapshotLivesAsLongAsTheJobSaysSo(t *testing.T) {
	pod := podNamed("p")
	states := newPods()
	states.Decide(Handover{Pod: pod, Job: "ns/g"}, podstate.Decision{Node: "n1"})
	if _, _, err := states.BeginBind(pod, "n1"); err != nil {
		t.Fatal(err)
	}
	states.EndBind("uid-p", "n1", nil)
	states.compareDecisions(&seen{assigned: map[string]*corev1.Pod{"ns/g n1": pod}})
	if states.Decisions() != 1 {
		t.Error("dropped although the job has the pod on the node")
	}
	states.compareDecisions(&seen{})
	if states.Decisions() != 0 {
		t.Error("kept although nobody knows the pod")
	}
}

func TestAWithdrawnAssumptionStopsABindThatHasNotBegun(t *testing.T) {
	states := newPods()
	states.Decide(Handover{Pod: podNamed("p")}, podstate.Decision{Node: "n1"})
	states.Withdraw("uid-p")
	if s := states.State("uid-p"); s.Decision() == nil || s.Refuses() == nil || s.Phase() == podstate.Calling {
		t.Errorf("after the withdrawal: %+v", s)
	}
}

func TestADecisionEndsWhenTheSnapshotShowsItsTextsAndNotForAnotherPodOfItsName(t *testing.T) {
	pod, other := podNamed("p"), podNamed("p")
	other.UID = "uid-other"
	for name, c := range map[string]struct {
		shown *corev1.Pod
		want  podstate.Phase
	}{
		"the pod, with the texts":                  {pod, podstate.Unknown},
		"another pod of that name, with the texts": {other, podstate.Withdrawn},
	} {
		states := newPods()
		states.Decide(Handover{Pod: pod}, podstate.Decision{Node: "n1", Annotations: pod.Annotations})
		states.compareDecisions(shows(podsOn("n1", c.shown)))
		if got := states.State("uid-p").Phase(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestEveryIndexIsEmptyWhenNothingIsKnownOfThePod(t *testing.T) {
	states, pod := newPods(), podNamed("p")
	there, gone := shows(podsOn("n1", pod)), shows(podsOn("n1"))
	there.api = []*corev1.Pod{pod}
	states.mu.Lock()
	states.applyEvent("uid-p", nameOf(pod), podstate.Event{Kind: podstate.List, Node: "n1"})
	states.mu.Unlock()
	if said := states.Awaited()["n1"]; said != "pod ns/p" {
		t.Errorf("awaited: %q", said)
	}
	states.readFrom(&Node{Name: "n1", holdings: map[*corev1.Pod]holding{pod: {placement: &sharing.Placement{Node: "n1"}}}})
	states.compareAwaited(there, there.Pods())
	if len(states.awaited) > 0 || len(states.bound["n1"]) != 1 || len(states.unseen) != 1 {
		t.Errorf("shown: awaited %v, bound %v, looked at %v", states.awaited, states.bound, states.unseen)
	}
	states.compareBound(gone, there.Pods())
	if len(states.bound) != 1 || len(states.unseen) != 1 {
		t.Errorf("not shown, and the pod exists: bound %v, looked at %v", states.bound, states.unseen)
	}
	states.compareBound(gone, gone.Pods())
	if len(states.states)+len(states.bound)+len(states.decided)+len(states.awaited)+len(states.unseen) > 0 {
		t.Errorf("gone: %+v", states)
	}
}
