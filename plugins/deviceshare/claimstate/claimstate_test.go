// SPDX-License-Identifier: Apache-2.0

package claimstate_test

import (
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"deviceshare/plugins/deviceshare/claimstate"
)

func after(events ...claimstate.Event) claimstate.State {
	var s claimstate.State
	for _, e := range events {
		s = s.After(e)
	}
	return s
}

func decide(pod types.UID, node string) claimstate.Event {
	return claimstate.Event{Kind: claimstate.Decide, Pod: pod, Decision: &claimstate.Decision{Node: node}}
}

func TestTheTransitionsOfTheTable(t *testing.T) {
	begin := claimstate.Event{Kind: claimstate.Begin, Version: 5}
	lose := claimstate.Event{Kind: claimstate.Lose}
	withdraw := func(pod types.UID) claimstate.Event {
		return claimstate.Event{Kind: claimstate.Withdraw, Pod: pod}
	}
	fail := func(pod types.UID) claimstate.Event { return claimstate.Event{Kind: claimstate.Fail, Pod: pod} }
	read := func(version uint64, allocated bool) claimstate.Event {
		return claimstate.Event{Kind: claimstate.Read, Version: version, Allocated: allocated}
	}
	cases := map[string]struct {
		events []claimstate.Event
		want   claimstate.Phase
	}{
		"nothing happened":                                 {nil, claimstate.Unknown},
		"decided":                                          {[]claimstate.Event{decide("a", "n")}, claimstate.Decided},
		"given up before it was written":                   {[]claimstate.Event{decide("a", "n"), withdraw("a")}, claimstate.Unknown},
		"given up by one of two pods":                      {[]claimstate.Event{decide("a", "n"), decide("b", "n"), withdraw("a")}, claimstate.Decided},
		"given up by both":                                 {[]claimstate.Event{decide("a", "n"), decide("b", "n"), withdraw("a"), withdraw("b")}, claimstate.Unknown},
		"given up while it is written":                     {[]claimstate.Event{decide("a", "n"), begin, withdraw("a")}, claimstate.Writing},
		"written and seen":                                 {[]claimstate.Event{decide("a", "n"), begin, read(6, true)}, claimstate.Unknown},
		"an older object is seen while it is written":      {[]claimstate.Event{decide("a", "n"), begin, read(5, false)}, claimstate.Writing},
		"a newer object without is seen while it is":       {[]claimstate.Event{decide("a", "n"), begin, read(6, false)}, claimstate.Writing},
		"the server refused it":                            {[]claimstate.Event{decide("a", "n"), begin, fail("a")}, claimstate.Unknown},
		"the server refused it and another pod waits":      {[]claimstate.Event{decide("a", "n"), decide("b", "n"), begin, fail("a")}, claimstate.Decided},
		"the answer was lost":                              {[]claimstate.Event{decide("a", "n"), begin, lose}, claimstate.Unanswered},
		"the answer was lost and it was not written":       {[]claimstate.Event{decide("a", "n"), begin, lose, read(6, false)}, claimstate.Unknown},
		"the answer was lost and an older object is seen":  {[]claimstate.Event{decide("a", "n"), begin, lose, read(5, false)}, claimstate.Unanswered},
		"the answer was lost, it was written":              {[]claimstate.Event{decide("a", "n"), begin, lose, read(6, true)}, claimstate.Unknown},
		"the answer was lost and the pod is tried again":   {[]claimstate.Event{decide("a", "n"), begin, lose, begin}, claimstate.Writing},
		"the answer was lost and long ago":                 {[]claimstate.Event{decide("a", "n"), begin, lose, {Kind: claimstate.Settle}}, claimstate.Unknown},
		"a refusal after the answer was lost says nothing": {[]claimstate.Event{decide("a", "n"), begin, lose, fail("a")}, claimstate.Unanswered},
		"deleted":                     {[]claimstate.Event{decide("a", "n"), begin, {Kind: claimstate.Gone}}, claimstate.Unknown},
		"a write that nobody decided": {[]claimstate.Event{begin}, claimstate.Unknown},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := after(tc.events...).Phase(); got != tc.want {
				t.Errorf("the claim is %v, want %v", got, tc.want)
			}
		})
	}
}

func TestADecisionForAnotherNodeChangesNothing(t *testing.T) {
	s := after(decide("a", "n"), decide("b", "elsewhere"))
	if s.Decision().Node != "n" || s.Awaits("b") || !s.Awaits("a") {
		t.Errorf("the claim is for %s and awaits %v", s.Decision().Node, s.Pods())
	}
}

// Whatever happens, in whatever order: a claim with a decision that nobody waits for is being
// written, and a claim at rest has neither decision nor pods. No event changes an earlier state.
func TestAnyOrderOfEventsLeavesAStateOfTheTable(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 32))
	pods := []types.UID{"a", "b", "c"}
	for range 20_000 {
		var s claimstate.State
		for range r.IntN(25) {
			e := claimstate.Event{Kind: claimstate.Kind(r.IntN(8)), Pod: pods[r.IntN(len(pods))], Version: uint64(r.IntN(9)), Allocated: r.IntN(2) == 0}
			if e.Kind == claimstate.Decide {
				e.Decision = &claimstate.Decision{Node: []string{"n", "m"}[r.IntN(2)]}
			}
			before, had := s, len(s.Pods())
			s = s.After(e)
			if len(before.Pods()) != had {
				t.Fatalf("event %v changed an earlier state", e)
			}
			if isAtRest := s.Phase() == claimstate.Unknown; isAtRest != (s.Decision() == nil) || isAtRest && len(s.Pods()) > 0 {
				t.Fatalf("after %v: %v with decision %v for %v", e, s.Phase(), s.Decision(), s.Pods())
			}
			if s.Phase() == claimstate.Decided && len(s.Pods()) == 0 {
				t.Fatalf("after %v: a decision that nobody waits for is kept", e)
			}
		}
	}
}
