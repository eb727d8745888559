// SPDX-License-Identifier: Apache-2.0

package podstate_test

import (
	"errors"
	"testing"

	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// annotated are annotations whose placement is a word.
func annotated(word, node string) map[string]string {
	return map[string]string{wire.PodPlacement: word, wire.PodAssigned: word, wire.PodNode: node, "other": "x"}
}

// decisionFor is a decision about one node that sends a word.
func decisionFor(node, word string) *podstate.Decision {
	return &podstate.Decision{Node: node, Placement: sharing.Placement{Node: node, Group: word}, Annotations: annotated(word, node)}
}

var errRefused = errors.New("the pod must not be bound")

// history applies events to a pod of which nothing is known.
func history(events ...podstate.Event) (s podstate.State) {
	for _, e := range events {
		s = s.After(e)
	}
	return s
}

// step names an event with everything that decides what it means.
type step struct {
	name  string
	event podstate.Event
}

func steps() []step {
	sent, other := annotated("sent", "n1"), annotated("other", "n1")
	return []step{
		{"Decide", podstate.Event{Kind: podstate.Decide, Decision: decisionFor("n1", "sent")}},
		{"Withdraw", podstate.Event{Kind: podstate.Withdraw}},
		{"Begin", podstate.Event{Kind: podstate.Begin, Node: "n1"}},
		{"Begin elsewhere", podstate.Event{Kind: podstate.Begin, Node: "n2"}},
		{"Accept", podstate.Event{Kind: podstate.Accept, Node: "n1"}},
		{"Accept elsewhere", podstate.Event{Kind: podstate.Accept, Node: "n2"}},
		{"Fail", podstate.Event{Kind: podstate.Fail, Node: "n1"}},
		{"Fail elsewhere", podstate.Event{Kind: podstate.Fail, Node: "n2"}},
		{"Match", podstate.Event{Kind: podstate.Match, Annotations: sent}},
		{"Match of other texts", podstate.Event{Kind: podstate.Match, Annotations: other}},
		{"Match of no texts", podstate.Event{Kind: podstate.Match}},
		{"Missing", podstate.Event{Kind: podstate.Missing}},
		{"Read", podstate.Event{Kind: podstate.Read, Node: "n1", Annotations: sent}},
		{"List", podstate.Event{Kind: podstate.List, Node: "n1"}},
		{"Show", podstate.Event{Kind: podstate.Show}},
		{"End", podstate.Event{Kind: podstate.End}},
	}
}

// reached is one history that leads to each phase.
func reached() map[podstate.Phase][]podstate.Event {
	decide := podstate.Event{Kind: podstate.Decide, Decision: decisionFor("n1", "sent")}
	begin := podstate.Event{Kind: podstate.Begin, Node: "n1"}
	return map[podstate.Phase][]podstate.Event{
		podstate.Unknown:    nil,
		podstate.Decided:    {decide},
		podstate.Withdrawn:  {decide, {Kind: podstate.Withdraw}},
		podstate.Calling:    {decide, begin},
		podstate.Unanswered: {decide, begin, {Kind: podstate.Fail, Node: "n1"}},
		podstate.Accepted:   {decide, begin, {Kind: podstate.Accept, Node: "n1"}},
		podstate.Bound:      {{Kind: podstate.Read, Node: "n1", Annotations: annotated("first", "n1")}},
	}
}

// transitions is the machine as a table: what is not listed changes nothing.
func transitions() map[podstate.Phase]map[string]podstate.Phase {
	const (
		unknown, decided, withdrawn   = podstate.Unknown, podstate.Decided, podstate.Withdrawn
		calling, unanswered, accepted = podstate.Calling, podstate.Unanswered, podstate.Accepted
		bound                         = podstate.Bound
	)
	return map[podstate.Phase]map[string]podstate.Phase{
		unknown:    {"Decide": decided, "Read": bound},
		decided:    {"Decide": decided, "Withdraw": withdrawn, "Begin": calling, "Match": unknown, "Missing": withdrawn},
		withdrawn:  {"Decide": decided, "Begin": withdrawn, "Match": unknown, "Missing": unknown},
		calling:    {"Decide": decided, "Begin": calling, "Accept": accepted, "Fail": unanswered, "Match": unknown},
		unanswered: {"Decide": decided, "Begin": calling, "Match": unknown, "Missing": unknown},
		accepted:   {"Decide": decided, "Begin": calling, "Match": unknown, "Missing": unknown},
		bound:      {"Decide": decided, "End": unknown},
	}
}

func TestEveryEventInEveryPhaseDoesWhatTheTableSays(t *testing.T) {
	for phase, before := range reached() {
		if got := history(before...).Phase(); got != phase {
			t.Fatalf("the history of %v leads to %v", phase, got)
		}
		for _, s := range steps() {
			want, listed := transitions()[phase][s.name]
			name := phase.String() + ": " + s.name + " leads to " + want.String()
			if !listed {
				want, name = phase, phase.String()+": "+s.name+" changes nothing"
			}
			t.Run(name, func(t *testing.T) {
				old := history(before...)
				now := old.After(s.event)
				if now.Phase() != want {
					t.Errorf("leads to %v, want %v", now.Phase(), want)
				}
				if !listed && (now.Decision() != old.Decision() || now.BoundTo() != old.BoundTo()) {
					t.Errorf("the phase stays and what it knows changes: %+v, was %+v", now, old)
				}
				holds := want != podstate.Unknown && want != podstate.Bound
				if (now.Decision() != nil) != holds || (now.BoundTo() != "") != (want == podstate.Bound || phase == podstate.Bound && s.name != "End") {
					t.Errorf("in phase %v with decision %v, bound to %q", want, now.Decision(), now.BoundTo())
				}
			})
		}
	}
}

func TestADecisionHidesTheFirstTextsAndDoesNotDropThem(t *testing.T) {
	read := podstate.Event{Kind: podstate.Read, Node: "n1", Annotations: annotated("first", "n1")}
	decide := podstate.Event{Kind: podstate.Decide, Decision: decisionFor("n1", "sent")}
	missing := podstate.Event{Kind: podstate.Missing}
	s := history(read, decide, missing, missing)
	if s.Phase() != podstate.Bound || s.Sources("n1", nil, true).First.Placement != "first" {
		t.Errorf("after the decision: %v, %+v", s.Phase(), s.Sources("n1", nil, true))
	}
	if s := history(read, decide, podstate.Event{Kind: podstate.End}, missing, missing); s != (podstate.State{}) {
		t.Errorf("the pod ended meanwhile, and still known is %+v", s)
	}
}

func TestWhyABindCallMustNotBegin(t *testing.T) {
	refused := decisionFor("n1", "sent")
	refused.Refusal = errRefused
	decide := podstate.Event{Kind: podstate.Decide, Decision: refused}
	begin := podstate.Event{Kind: podstate.Begin, Node: "n1"}
	for name, c := range map[string]struct {
		events []podstate.Event
		phase  podstate.Phase
		want   error
	}{
		"nothing was decided":           {nil, podstate.Unknown, nil},
		"it may":                        {reached()[podstate.Decided], podstate.Decided, nil},
		"it was withdrawn":              {reached()[podstate.Withdrawn], podstate.Withdrawn, podstate.ErrWithdrawn},
		"it was refused when decided":   {[]podstate.Event{decide}, podstate.Decided, errRefused},
		"and the call began":            {[]podstate.Event{decide, begin}, podstate.Withdrawn, errRefused},
		"and the pod was not there":     {[]podstate.Event{decide, {Kind: podstate.Missing}}, podstate.Withdrawn, podstate.ErrWithdrawn},
		"it was withdrawn and it began": {append(reached()[podstate.Withdrawn], begin), podstate.Withdrawn, podstate.ErrWithdrawn},
	} {
		s := history(c.events...)
		if err := s.Refuses(); !errors.Is(err, c.want) || s.Phase() != c.phase {
			t.Errorf("%s: refuses with %v in %v, want %v in %v", name, err, s.Phase(), c.want, c.phase)
		}
	}
	if refused.Refusal != errRefused {
		t.Error("the decision that was given was changed")
	}
}

func TestAPodIsAwaitedUntilItIsShownOrHasEnded(t *testing.T) {
	list := podstate.Event{Kind: podstate.List, Node: "n1"}
	for phase, before := range reached() {
		s := history(append(before, list)...)
		if s.AwaitedOn() != "n1" || s.Phase() != phase {
			t.Errorf("%v and listed: %v, awaited on %q", phase, s.Phase(), s.AwaitedOn())
		}
		if shown := s.After(podstate.Event{Kind: podstate.Show}); shown != history(before...) && phase == podstate.Unknown {
			t.Errorf("%v and shown: %+v", phase, shown)
		} else if shown.AwaitedOn() != "" || shown.Phase() != phase {
			t.Errorf("%v and shown: %v, awaited on %q", phase, shown.Phase(), shown.AwaitedOn())
		}
		if ended := s.After(podstate.Event{Kind: podstate.End}); ended.AwaitedOn() != "" || ended.BoundTo() != "" {
			t.Errorf("%v and ended: awaited on %q, bound to %q", phase, ended.AwaitedOn(), ended.BoundTo())
		}
	}
}

func TestPhasesAndEventsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for p := podstate.Unknown; p <= podstate.Bound; p++ {
		seen[p.String()] = true
	}
	for k := podstate.Decide; k <= podstate.End; k++ {
		seen[k.String()] = true
	}
	if len(seen) != 7+11 || (podstate.Bound+1).String() != "Phase(?)" || (podstate.End+1).String() != "Kind(?)" {
		t.Errorf("names %v", seen)
	}
}

func TestADecisionThatSentNothingIsNotEndedByAPodWithoutTexts(t *testing.T) {
	refused := podstate.Event{Kind: podstate.Decide, Decision: &podstate.Decision{Node: "n1", Refusal: errRefused}}
	s := history(refused, podstate.Event{Kind: podstate.Match, Annotations: map[string]string{"other": "x"}})
	if s.Phase() != podstate.Decided {
		t.Errorf("the phase is %v", s.Phase())
	}
}
