// SPDX-License-Identifier: Apache-2.0

// Package podstate is the state machine that says what a pod holds on a node: one
// State for each pod UID, from the commit of a decision until the pod has ended.
//
// A pod's annotations alone do not say what it holds. They arrive some time after
// the decision, the answer to the bind call may be lost, and whoever may patch the
// pod can write them. The state says which of three sources counts: the decision of
// this process, the texts that the pod was bound with, or the annotations it has now.
//
// Most pods go this way:
//
//	Unknown ──Decide──► Decided ──Begin──► Calling ──Accept──► Accepted
//	                                                               │ Match
//	                                         Bound ◄──Read── Unknown ◄┘
//
// All transitions:
//
//	from                        event               to
//	any                         Decide              Decided
//	Decided                     Begin               Calling; Withdrawn if the decision is refused
//	Decided                     Withdraw, Missing   Withdrawn
//	Withdrawn                   Begin               Withdrawn: the call is not made
//	Withdrawn                   Missing             at rest
//	Calling                     Accept              Accepted
//	Calling                     Fail                Unanswered
//	Unanswered, Accepted        Begin               Calling
//	Unanswered, Accepted        Missing             at rest
//	any with a decision         Match               at rest
//	Unknown                     Read                Bound
//	Bound                       End                 Unknown
//
// At rest a pod is Bound if its first texts are known, else Unknown. A decision hides
// the first texts and does not drop them. What the table does not list changes nothing.
//
// Beside the phase a state notes whether the pod is awaited: the API server has bound
// it to a node (List) and no snapshot has shown it there (Show, End). Until then the
// node would look emptier than it is.
//
// What a session reserves and has not committed is not part of the state: the session
// drops it when it closes. The decision that Decide brings is what it committed.
//
// The package is pure: events in, state out. A State is a value; nothing that it
// refers to is ever changed, so it may be read from many goroutines.
package podstate

import (
	"errors"

	"deviceshare/sharing"
)

// Phase is how far the decision about a pod has come.
type Phase uint8

const (
	// Unknown is a pod about which only its own annotations tell.
	Unknown Phase = iota
	// Decided is a decision that was committed and whose bind call has not begun. It
	// may never begin: what other plugins do before it can fail, and then Volcano takes
	// the pod off the node without a bind call.
	Decided
	// Withdrawn is a decision that was given up before its bind call began. A call that
	// begins all the same is refused.
	Withdrawn
	// Calling is a bind call that has begun and not returned. Until then no snapshot
	// can tell what became of it.
	Calling
	// Unanswered is a bind call that returned an error. The API server may have bound
	// the pod all the same; the next snapshots tell.
	Unanswered
	// Accepted is a bind call to which the API server said that it wrote node name and
	// annotations.
	Accepted
	// Bound is a pod that a snapshot has shown with a placement. The texts that it had
	// then count for as long as it exists.
	Bound
)

// String returns the name of the phase.
func (p Phase) String() string {
	names := [...]string{"Unknown", "Decided", "Withdrawn", "Calling", "Unanswered", "Accepted", "Bound"}
	if int(p) < len(names) {
		return names[p]
	}
	return "Phase(?)"
}

// ErrWithdrawn refuses the bind call of a decision that was given up.
var ErrWithdrawn = errors.New("the scheduler gave up this placement before the pod was bound")

// Decision is a placement that was committed. It is not changed once it is given to
// a State.
type Decision struct {
	Node      string
	Placement sharing.Placement
	// Annotations go on the Binding. They are empty if Refusal is set.
	Annotations map[string]string
	// Refusal is why the pod must not be bound, nil if it may be.
	Refusal error
}

// matchesAnnotations reports whether annotations carry exactly what the decision sent. Those of
// an earlier attempt do not match.
func (d *Decision) matchesAnnotations(annotations map[string]string) bool {
	sent := TextsOf(d.Annotations)
	return sent.Placement != "" && sent.SameIn(annotations)
}

// firstBinding is what a pod was bound with.
type firstBinding struct {
	node  string
	texts Texts
}

// State is what is known about one pod beside what the snapshot shows. The zero value
// is a pod of which nothing is known.
type State struct {
	phase    Phase
	decision *Decision     // from Decided to Accepted
	first    *firstBinding // always in Bound, in others if the pod was Bound before
	awaited  string        // the node on which it is awaited, "" if it is not
}

// Phase returns how far the decision has come.
func (s State) Phase() Phase { return s.phase }

// Decision returns the decision in the phases from Decided to Accepted, else nil. It
// must not be changed.
func (s State) Decision() *Decision { return s.decision }

// FirstOn reports whether the texts are known with which the pod was bound to a node.
func (s State) FirstOn(node string) bool { return s.first != nil && s.first.node == node }

// BoundTo returns the node on which the pod's first texts were read, "" if none were.
func (s State) BoundTo() string {
	if s.first == nil {
		return ""
	}
	return s.first.node
}

// AwaitedOn returns the node on which the pod is awaited, "" if it is not.
func (s State) AwaitedOn() string { return s.awaited }

// Underway returns what the pod takes of a node although a snapshot may have lost
// sight of it: a decision whose bind call has not returned. Nil if there is none.
func (s State) Underway(node string) *sharing.Placement {
	underway := s.phase == Decided || s.phase == Calling
	if !underway || s.decision.Node != node || s.decision.Refusal != nil {
		return nil
	}
	return &s.decision.Placement
}

// Sources says what to believe about a pod that a snapshot shows on a node.
type Sources struct {
	// Given, if not nil, is what the pod holds, whatever its annotations say.
	Given *sharing.Placement
	// First, if not nil, are the texts to read instead of the pod's annotations.
	First *Texts
	// Otherwise, if not nil, is what the pod holds if its texts cannot be read.
	Otherwise *sharing.Placement
	// Edited reports that the pod's texts are not those it was bound with.
	Edited bool
}

// Sources returns what to believe about the pod on a node, given the annotations it
// has now and whether the API server says that it is scheduled.
//
// A decision goes first as long as the pod is not scheduled: its annotations may be
// left from an earlier attempt. It also goes first while the bind call may still
// write, and for good once the API server accepted it.
func (s State) Sources(node string, annotations map[string]string, scheduled bool) Sources {
	var out Sources
	if s.decision != nil && s.decision.Node == node {
		open := s.phase == Decided || s.phase == Calling || s.phase == Accepted
		if open || !scheduled {
			edited := s.phase == Accepted && scheduled && !s.decision.matchesAnnotations(annotations)
			return Sources{Given: &s.decision.Placement, Edited: edited}
		}
		out.Otherwise = &s.decision.Placement
	}
	if s.FirstOn(node) {
		out.First, out.Edited = &s.first.texts, !s.first.texts.SameIn(annotations)
	}
	return out
}
