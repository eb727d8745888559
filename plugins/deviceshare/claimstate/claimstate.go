// SPDX-License-Identifier: Apache-2.0

// Package claimstate is the state machine that says what a ResourceClaim holds beside what its own
// status says: one State for each claim UID, from the commit of a decision until the API server has
// shown what became of it. It is the twin of package podstate.
//
// A claim's allocation is written once and never changed, so the status is the truth as soon as it
// is seen. Until then the decision of this process counts:
//
//	Unknown ─Decide─► Decided ─Begin─► Writing ─Read, allocated─► Unknown
//
// All transitions:
//
//	from                  event                                   to
//	Unknown               Decide                                  Decided
//	any with a decision   Decide for the same node                the same, for one more pod
//	Decided               Withdraw of its last pod                Unknown
//	any with a decision   Begin                                   Writing
//	Writing               Fail                                    Decided without the pod, else Unknown
//	Writing               Lose                                    Unanswered
//	Unanswered            Settle                                  Unknown
//	any with a decision   Read, allocated                         Unknown
//	Unanswered            Read, not allocated, since the write    Unknown
//	any                   Gone                                    Unknown
//
// The answer to a write is a Read. What the table does not list changes nothing.
//
// "Since the write" compares resource versions. A write names the version that it is based on, and
// the API server refuses it for any other. So if a later version has no allocation, the write did
// not happen, and will not.
//
// The package is pure: events in, state out. A State is a value; nothing that it refers to is ever
// changed.
package claimstate

import (
	"maps"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/sharing"
)

// Phase is how far the decision about a claim has come.
type Phase uint8

// The phases.
const (
	// Unknown is a claim about which only its own status tells.
	Unknown Phase = iota
	// Decided is a decision that was committed and is not being written.
	Decided
	// Writing is a write that has begun and not returned.
	Writing
	// Unanswered is a write of which it is not known whether it happened.
	Unanswered
)

// String returns the name of the phase.
func (p Phase) String() string {
	names := [...]string{"Unknown", "Decided", "Writing", "Unanswered"}
	if int(p) < len(names) {
		return names[p]
	}
	return "Phase(?)"
}

// Decision is what a claim is given. It is not changed once it is given to a State.
type Decision struct {
	Node      string
	Placement sharing.Placement
	// Queue is charged for it.
	Queue string
	// Allocation is what is written into the claim's status.
	Allocation *resourcev1.AllocationResult
}

// State is what is known about one claim beside its status. The zero value is a claim of which
// nothing is known.
type State struct {
	phase    Phase
	decision *Decision // in all phases but Unknown
	// pods are those that a session gave the decision to and that were not bound yet.
	pods map[types.UID]struct{}
	// version is what the write is based on.
	version uint64
}

// Phase returns how far the decision has come.
func (s State) Phase() Phase { return s.phase }

// Decision returns the decision, nil in Unknown. It must not be changed.
func (s State) Decision() *Decision { return s.decision }

// Awaits reports whether the decision was given to a pod that is not bound yet.
func (s State) Awaits(pod types.UID) bool {
	_, is := s.pods[pod]
	return is
}

// Pods returns the pods that the decision was given to and that are not bound yet. It must not be
// changed.
func (s State) Pods() map[types.UID]struct{} { return s.pods }

// Kind is what happened.
type Kind uint8

// The events.
const (
	// Decide: a session committed a decision for a pod.
	Decide Kind = iota
	// Withdraw: the decision for a pod was given up.
	Withdraw
	// Begin: the claim is about to be written for a pod, based on a version of it.
	Begin
	// Fail: the API server did not write it, and will not.
	Fail
	// Lose: it is not known whether the API server wrote it.
	Lose
	// Settle: so much time has passed since the write that it will not happen any more.
	Settle
	// Read: the claim was seen.
	Read
	// Gone: the claim was deleted.
	Gone
)

// Event is something that happened to a claim.
type Event struct {
	Kind Kind
	// Pod is of Decide, Withdraw and Fail.
	Pod types.UID
	// Decision is of Decide.
	Decision *Decision
	// Version is of Begin and Read.
	Version uint64
	// Allocated is of Read.
	Allocated bool
}

// After returns the state after an event.
func (s State) After(e Event) State {
	switch e.Kind {
	case Decide:
		return s.afterDecide(e)
	case Withdraw:
		return s.withoutPod(e.Pod).unlessForNobody()
	case Begin:
		if s.decision != nil {
			s.phase, s.version = Writing, e.Version
		}
	case Fail:
		if s.phase == Writing {
			s.phase = Decided
			return s.withoutPod(e.Pod).unlessForNobody()
		}
	case Lose:
		if s.phase == Writing {
			s.phase = Unanswered
		}
	case Settle:
		if s.phase == Unanswered {
			return State{}
		}
	case Read:
		return s.afterRead(e)
	case Gone:
		return State{}
	}
	return s
}

func (s State) afterDecide(e Event) State {
	switch {
	case s.decision == nil:
		return State{phase: Decided, decision: e.Decision, pods: map[types.UID]struct{}{e.Pod: {}}}
	case s.decision.Node == e.Decision.Node:
		s.pods = maps.Clone(s.pods)
		if s.pods == nil {
			s.pods = map[types.UID]struct{}{}
		}
		s.pods[e.Pod] = struct{}{}
	}
	return s
}

func (s State) afterRead(e Event) State {
	if e.Allocated || s.phase == Unanswered && e.Version > s.version {
		return State{}
	}
	return s
}

func (s State) withoutPod(pod types.UID) State {
	if s.Awaits(pod) {
		s.pods = maps.Clone(s.pods)
		delete(s.pods, pod)
	}
	return s
}

// unlessForNobody drops a decision that no pod waits for and that is not being written.
func (s State) unlessForNobody() State {
	if s.phase == Decided && len(s.pods) == 0 {
		return State{}
	}
	return s
}
