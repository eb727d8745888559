// SPDX-License-Identifier: Apache-2.0

package podstate

// Event is something that happened to one pod.
type Event struct {
	Kind Kind
	// Node is where it happened. Begin, Accept, Fail, Read and List need it.
	Node string
	// Decision is what Decide brings.
	Decision *Decision
	// Annotations are those of the pod in the snapshot. Match and Read need them.
	Annotations map[string]string
}

// Kind is what happened.
type Kind uint8

const (
	// Decide: a session committed a decision about the pod.
	Decide Kind = iota
	// Withdraw: a session gave up the decision after it had committed it.
	Withdraw
	// Begin: the bind call to Node is about to be made. Ask Refuses first.
	Begin
	// Accept: the bind call to Node has returned, and the API server did it.
	Accept
	// Fail: the bind call to Node has returned an error, which says nothing.
	Fail
	// Match: the snapshot shows the pod where it was decided, with Annotations. They
	// end the decision if they are exactly those that it sent.
	Match
	// Missing: the snapshot does not show the pod where it was decided.
	Missing
	// Read: the snapshot shows the pod, scheduled to Node, and a placement on that node
	// was read from Annotations.
	Read
	// List: the API server has the pod bound to Node, and no snapshot has shown it.
	List
	// Show: the snapshot shows the pod on the node on which it is awaited.
	Show
	// End: no snapshot shows the pod, and the API server says that it was deleted or
	// will never run again.
	End
)

// String returns the name of the kind.
func (k Kind) String() string {
	names := [...]string{"Decide", "Withdraw", "Begin", "Accept", "Fail", "Match", "Missing", "Read", "List", "Show", "End"}
	if int(k) < len(names) {
		return names[k]
	}
	return "Kind(?)"
}

// After returns the state after an event. Events that mean nothing in a phase change
// nothing, since answers can come late.
func (s State) After(e Event) State {
	switch e.Kind {
	case Decide:
		s.phase, s.decision = Decided, e.Decision
	case Withdraw:
		return s.afterWithdraw()
	case Begin:
		return s.afterBegin(e.Node)
	case Accept:
		return s.afterReturn(e.Node, Accepted)
	case Fail:
		return s.afterReturn(e.Node, Unanswered)
	case Match:
		if s.decision != nil && s.decision.matchesAnnotations(e.Annotations) {
			return s.atRest()
		}
	case Missing:
		return s.afterMissing()
	case Read:
		if s.phase == Unknown {
			s.phase, s.first = Bound, &firstBinding{node: e.Node, texts: TextsOf(e.Annotations)}
		}
	case List:
		s.awaited = e.Node
	case Show:
		s.awaited = ""
	case End:
		s.awaited, s.first = "", nil
		if s.phase == Bound {
			s.phase = Unknown
		}
	}
	return s
}

// Refuses returns why a bind call must not begin, nil if it may. A pod without a
// decision is not refused here.
func (s State) Refuses() error {
	if s.decision == nil {
		return nil
	}
	return s.decision.Refusal
}

// afterWithdraw gives up a decision whose bind call has not begun. Of one that has, only
// the answer and the next snapshots tell.
func (s State) afterWithdraw() State {
	if s.phase != Decided {
		return s
	}
	given := *s.decision
	given.Refusal = ErrWithdrawn
	s.phase, s.decision = Withdrawn, &given
	return s
}

// afterBegin notes a bind call. From here on the decision cannot be withdrawn.
func (s State) afterBegin(node string) State {
	switch {
	case s.decision == nil || s.decision.Node != node:
	case s.decision.Refusal != nil:
		s.phase = Withdrawn // the call is not made
	default:
		s.phase = Calling
	}
	return s
}

// afterReturn notes the answer to a bind call. That of a call to another node belongs to
// an earlier decision.
func (s State) afterReturn(node string, phase Phase) State {
	if s.phase == Calling && s.decision.Node == node {
		s.phase = phase
	}
	return s
}

// afterMissing is what a snapshot without the pod means. Before the bind call has begun,
// Volcano took the pod off the node: the decision is given up first, so that a call
// that begins all the same fails, and dropped by the next snapshot.
func (s State) afterMissing() State {
	switch s.phase {
	case Decided:
		return s.afterWithdraw()
	case Withdrawn, Unanswered, Accepted:
		return s.atRest()
	}
	return s
}

func (s State) atRest() State {
	s.phase, s.decision = Unknown, nil
	if s.first != nil {
		s.phase = Bound
	}
	return s
}
