// SPDX-License-Identifier: Apache-2.0

package podstate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing/wire"
)

// facts is the oracle: it knows no phases, only what has happened.
type facts struct {
	decided              *podstate.Decision
	refused, gaveUp      bool
	began                bool // a call was made; the two below are about the last one
	callReturned, callOK bool
	boundOn, boundText   string
	awaitedOn            string
}

// learn takes in one event.
func (f *facts) learn(e podstate.Event) {
	text := e.Annotations[wire.PodPlacement]
	switch e.Kind {
	case podstate.Decide:
		f.decided, f.refused = e.Decision, e.Decision.Refusal != nil
		f.gaveUp, f.began, f.callReturned, f.callOK = false, false, false, false
	case podstate.Withdraw:
		f.giveUp()
	case podstate.Begin:
		switch {
		case f.decided == nil || f.decided.Node != e.Node:
		case f.refused:
			f.gaveUp = true
		default:
			f.began, f.callReturned, f.callOK = true, false, false
		}
	case podstate.Accept, podstate.Fail:
		if f.decided != nil && f.decided.Node == e.Node && f.began && !f.callReturned {
			f.callReturned, f.callOK = true, e.Kind == podstate.Accept
		}
	case podstate.Match:
		if f.decided != nil && text != "" && f.decided.Node == e.Annotations[wire.PodNode] && text == f.decided.Annotations[wire.PodPlacement] {
			f.decided = nil
		}
	case podstate.Missing:
		switch {
		case f.began && !f.callReturned:
		case f.began || f.gaveUp:
			f.decided = nil
		default:
			f.giveUp()
		}
	case podstate.Read:
		if f.decided == nil && f.boundOn == "" {
			f.boundOn, f.boundText = e.Node, text
		}
	case podstate.List:
		f.awaitedOn = e.Node
	case podstate.Show:
		f.awaitedOn = ""
	case podstate.End:
		f.awaitedOn, f.boundOn, f.boundText = "", "", ""
	}
}

// giveUp is for a decision of which no call was made.
func (f *facts) giveUp() {
	if f.decided != nil && !f.began {
		f.refused, f.gaveUp = true, true
	}
}

// believed is what the oracle believes about a pod that is shown on a node.
func (f *facts) believed(node, text string, scheduled bool) string {
	out, first := "the annotations", ""
	if f.boundOn == node {
		out, first = "first "+f.boundText, f.boundText
	}
	edited := first != "" && first != text
	if f.decided != nil && f.decided.Node == node {
		lost := f.gaveUp || f.callReturned && !f.callOK
		if !lost || !scheduled {
			out = "given " + f.decided.Placement.Group
			edited = f.callOK && scheduled && text != f.decided.Annotations[wire.PodPlacement]
		} else {
			out += ", else " + f.decided.Placement.Group
		}
	}
	if edited {
		out += ", edited"
	}
	return out
}

// taken is what the oracle says the pod takes of a node that does not show it.
func (f *facts) taken(node string) string {
	if f.decided == nil || f.decided.Node != node || f.refused || f.callReturned {
		return ""
	}
	return f.decided.Placement.Group
}

// draw makes a random event.
func draw(r *rand.Rand) podstate.Event {
	node := []string{"n1", "n2"}[r.IntN(2)]
	word := []string{"a", "b"}[r.IntN(2)]
	e := podstate.Event{Kind: podstate.Kind(r.IntN(int(podstate.End) + 1)), Node: node, Annotations: annotated(word, node)}
	if e.Kind == podstate.Decide {
		e.Decision = decisionFor(node, word)
		if r.IntN(4) == 0 {
			e.Decision.Refusal = errRefused
		}
	}
	return e
}

func TestAnyOrderOfEventsAgreesWithTheOracle(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		var s podstate.State
		var f facts
		var log []string
		for range 40 {
			e := draw(r)
			log = append(log, fmt.Sprintf("%v %s %s", e.Kind, e.Node, e.Annotations[wire.PodPlacement]))
			s = s.After(e)
			f.learn(e)
			if difference := compare(s, &f); difference != "" {
				t.Fatalf("seed %d: %s\nafter %q", seed, difference, log)
			}
		}
	}
}

// compare says where the machine and the oracle differ, "" if they agree.
func compare(s podstate.State, f *facts) string {
	if (s.Decision() != nil) != (f.decided != nil) || (s.Refuses() != nil) != (f.decided != nil && f.refused) {
		return fmt.Sprintf("%v refuses %v; the oracle: %+v", s.Phase(), s.Refuses(), f)
	}
	if s.BoundTo() != f.boundOn || s.AwaitedOn() != f.awaitedOn {
		return fmt.Sprintf("bound to %q, awaited on %q; the oracle: %+v", s.BoundTo(), s.AwaitedOn(), f)
	}
	for _, node := range []string{"n1", "n2"} {
		got := ""
		if p := s.Underway(node); p != nil {
			got = p.Group
		}
		if want := f.taken(node); got != want {
			return fmt.Sprintf("%v takes %q of %s, the oracle says %q", s.Phase(), got, node, want)
		}
		for _, word := range []string{"a", "b"} {
			for _, scheduled := range []bool{false, true} {
				// The placement alone differs, as the oracle reads nothing else.
				annotations := annotated(word, node)
				got, want := said(s.Sources(node, annotations, scheduled)), f.believed(node, word, scheduled)
				if got != want {
					return fmt.Sprintf("%v on %s with %q, scheduled %t: %s, the oracle says %s", s.Phase(), node, word, scheduled, got, want)
				}
			}
		}
	}
	return ""
}

// A call that is under way always counts, and a decision that was given up is never
// sent, whatever happens in between.
func TestNoOrderOfEventsLosesACallOrSendsWhatWasGivenUp(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 11))
		var s podstate.State
		for range 40 {
			e := draw(r)
			before := s
			s = s.After(e)
			changed := e.Kind == podstate.Decide || e.Kind == podstate.Match ||
				(e.Kind == podstate.Accept || e.Kind == podstate.Fail) && before.Decision() != nil && e.Node == before.Decision().Node
			if before.Phase() == podstate.Calling && !changed && s.Underway(before.Decision().Node) == nil {
				t.Fatalf("seed %d: %v lost a call", seed, e.Kind)
			}
			if before.Phase() == podstate.Withdrawn && s.Phase() == podstate.Calling {
				t.Fatalf("seed %d: %v sends a decision that was given up", seed, e.Kind)
			}
		}
	}
}
