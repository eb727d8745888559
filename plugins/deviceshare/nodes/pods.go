// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing"
)

// Pods keeps the state of every pod about which more is known than its
// annotations, and turns snapshots and bind calls into events for them. It decides
// nothing: see package podstate.
//
// Safe for concurrent use. The session goroutine sends the events of sessions and
// snapshots, binding goroutines those of bind calls; workers read.
type Pods struct {
	mu     sync.RWMutex
	states map[sharing.Owner]podstate.State
	// decided are the pods with a decision, bound those with first texts, awaited those
	// that no snapshot has shown; the latter two by node.
	decided map[sharing.Owner]Handover
	bound   map[string]map[sharing.Owner]types.NamespacedName
	awaited map[string]map[sharing.Owner]types.NamespacedName
	// unseen are nodes with a bound pod that the last snapshot may not show.
	unseen map[string]struct{}
	// touched are the nodes whose decisions changed since touchedNodes was last called.
	touched map[string]struct{}
}

// Handover is what belongs to a decision beside what its state knows.
type Handover struct {
	Pod *corev1.Pod
	// Job is the pod's job as the snapshot knows it.
	Job string
	// Fallback is nil if the devices are in the mode that the pod named first.
	Fallback *Fallback
}

// Fallback is what a pod is told once it is bound whose devices are not in the mode that
// it named first.
type Fallback struct {
	Why string
}

func newPods() *Pods {
	return &Pods{
		states: map[sharing.Owner]podstate.State{}, decided: map[sharing.Owner]Handover{},
		bound: map[string]map[sharing.Owner]types.NamespacedName{}, awaited: map[string]map[sharing.Owner]types.NamespacedName{},
		unseen: map[string]struct{}{}, touched: map[string]struct{}{},
	}
}

// applyEvent sends an event to a pod and keeps the indexes in step. The lock is held.
func (s *Pods) applyEvent(owner sharing.Owner, pod types.NamespacedName, e podstate.Event) {
	before := s.states[owner]
	after := before.After(e)
	if after == (podstate.State{}) {
		delete(s.states, owner)
	} else {
		s.states[owner] = after
	}
	if was, is := before.Decision(), after.Decision(); was != is {
		for _, d := range []*podstate.Decision{was, is} {
			if d != nil {
				s.touched[d.Node] = struct{}{}
			}
		}
		if is == nil {
			delete(s.decided, owner)
		}
	}
	moveInIndex(s.bound, before.BoundTo(), after.BoundTo(), owner, pod)
	moveInIndex(s.awaited, before.AwaitedOn(), after.AwaitedOn(), owner, pod)
}

// moveInIndex moves a pod from one node to another; "" is none.
func moveInIndex(index map[string]map[sharing.Owner]types.NamespacedName, from, to string, owner sharing.Owner, pod types.NamespacedName) {
	if from == to {
		return
	}
	if from != "" {
		delete(index[from], owner)
		if len(index[from]) == 0 {
			delete(index, from)
		}
	}
	if to == "" {
		return
	}
	if index[to] == nil {
		index[to] = map[sharing.Owner]types.NamespacedName{}
	}
	index[to][owner] = pod
}

// State returns what is known about a pod.
func (s *Pods) State(owner sharing.Owner) podstate.State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.states[owner]
}

// Decisions is the number of pods with a decision.
func (s *Pods) Decisions() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.decided)
}

// Assumed returns the pods with a decision. The caller owns the set.
func (s *Pods) Assumed() map[sharing.Owner]struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[sharing.Owner]struct{}, len(s.decided))
	for owner := range s.decided {
		out[owner] = struct{}{}
	}
	return out
}

// Decide notes a decision that is about to be handed over for binding.
func (s *Pods) Decide(h Handover, d podstate.Decision) {
	owner := ownerOf(h.Pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyEvent(owner, nameOf(h.Pod), podstate.Event{Kind: podstate.Decide, Decision: &d})
	s.decided[owner] = h
}

// Withdraw notes that a session gave up a decision after it was handed over.
func (s *Pods) Withdraw(owner sharing.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyEvent(owner, types.NamespacedName{}, podstate.Event{Kind: podstate.Withdraw})
}

// BeginBind notes that the bind call of a pod to a node is about to be made, and returns what
// is to be sent and what the pod is told afterwards. An error means that the call must
// not be made. The decision is nil for a pod without one.
func (s *Pods) BeginBind(pod *corev1.Pod, node string) (d *podstate.Decision, fallback *Fallback, err error) {
	owner := ownerOf(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	d = s.states[owner].Decision()
	switch {
	case d == nil:
		return nil, nil, nil
	case d.Node != node:
		return d, nil, fmt.Errorf("bind pod %s/%s to node %s: its devices are on node %s", pod.Namespace, pod.Name, node, d.Node)
	}
	fallback = s.decided[owner].Fallback
	s.applyEvent(owner, nameOf(pod), podstate.Event{Kind: podstate.Begin, Node: node})
	return d, fallback, s.states[owner].Refuses()
}

// EndBind notes that the bind call to a node has returned.
func (s *Pods) EndBind(owner sharing.Owner, node string, err error) {
	kind := podstate.Accept
	if err != nil {
		kind = podstate.Fail
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyEvent(owner, types.NamespacedName{}, podstate.Event{Kind: kind, Node: node})
}

// compareDecisions tells each pod with a decision whether the snapshot shows it where
// it was decided.
func (s *Pods) compareDecisions(snapshot Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner, h := range s.decided {
		e := podstate.Event{Kind: podstate.Missing}
		if pod := h.findPod(s.states[owner].Decision().Node, snapshot); pod != nil {
			e = podstate.Event{Kind: podstate.Match, Annotations: pod.Annotations}
		}
		s.applyEvent(owner, nameOf(h.Pod), e)
	}
}

// findPod returns the pod if the snapshot shows it on a node, else nil. A node that is not
// in the snapshot says nothing; then the pod's job tells.
func (h *Handover) findPod(node string, snapshot Snapshot) *corev1.Pod {
	host := snapshot.Host(node)
	if host == nil {
		return snapshot.Assigned(h.Job, h.Pod.UID, node)
	}
	if pod := host.Pod(nameOf(h.Pod)); pod != nil && pod.UID == h.Pod.UID {
		return pod
	}
	return nil
}

// touchedNodes returns and forgets the nodes whose decisions changed.
func (s *Pods) touchedNodes() map[string]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.touched
	s.touched = map[string]struct{}{}
	return out
}

// underwayTo returns the placements whose bind call to the node has not returned. They
// count even if a snapshot has lost sight of the pod.
func (s *Pods) underwayTo(node string) map[sharing.Owner]sharing.Placement {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out map[sharing.Owner]sharing.Placement
	for owner := range s.decided {
		if p := s.states[owner].Underway(node); p != nil {
			if out == nil {
				out = map[sharing.Owner]sharing.Placement{}
			}
			out[owner] = *p
		}
	}
	return out
}

func ownerOf(pod *corev1.Pod) sharing.Owner { return sharing.Owner(pod.UID) }

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
