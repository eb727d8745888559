// SPDX-License-Identifier: Apache-2.0

package podstate_test

import (
	"testing"

	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing/wire"
)

// said is Sources as words: what is given, read and taken otherwise.
func said(s podstate.Sources) string {
	text := "the annotations"
	if s.First != nil {
		text = "first " + s.First.Placement
	}
	if s.Given != nil {
		text = "given " + s.Given.Group
	}
	if s.Otherwise != nil {
		text += ", else " + s.Otherwise.Group
	}
	if s.Edited {
		text += ", edited"
	}
	return text
}

func TestWhatIsBelievedAboutAPod(t *testing.T) {
	type row struct{ waiting, sent, edited string }
	for phase, want := range map[podstate.Phase]row{
		podstate.Unknown:    {"the annotations", "the annotations", "the annotations"},
		podstate.Decided:    {"given sent", "given sent", "given sent"},
		podstate.Withdrawn:  {"given sent", "the annotations, else sent", "the annotations, else sent"},
		podstate.Calling:    {"given sent", "given sent", "given sent"},
		podstate.Unanswered: {"given sent", "the annotations, else sent", "the annotations, else sent"},
		podstate.Accepted:   {"given sent", "given sent", "given sent, edited"},
		podstate.Bound:      {"first first, edited", "first first, edited", "first first, edited"},
	} {
		s := history(reached()[phase]...)
		for name, c := range map[string]struct {
			annotations map[string]string
			scheduled   bool
			want        string
		}{
			"not scheduled, with texts of before": {annotated("before", "n1"), false, want.waiting},
			"scheduled, with the texts sent":      {annotated("sent", "n1"), true, want.sent},
			"scheduled, with other texts":         {annotated("edited", "n1"), true, want.edited},
		} {
			if got := said(s.Sources("n1", c.annotations, c.scheduled)); got != c.want {
				t.Errorf("%v, %s: %s, want %s", phase, name, got, c.want)
			}
		}
		if got := said(s.Sources("n2", annotated("x", "n2"), true)); got != "the annotations" {
			t.Errorf("%v, on another node: %s", phase, got)
		}
	}
}

func TestTheFirstTextsCountWhileTheAnswerIsLost(t *testing.T) {
	read := podstate.Event{Kind: podstate.Read, Node: "n1", Annotations: annotated("first", "n1")}
	s := history(append([]podstate.Event{read}, reached()[podstate.Unanswered]...)...)
	for word, want := range map[string]string{"first": "first first, else sent", "other": "first first, else sent, edited"} {
		if got := said(s.Sources("n1", annotated(word, "n1"), true)); got != want {
			t.Errorf("with texts %q: %s, want %s", word, got, want)
		}
	}
}

func TestWhatIsTakenOfANodeThatHasLostSightOfThePod(t *testing.T) {
	for phase, events := range reached() {
		s := history(events...)
		want := phase == podstate.Decided || phase == podstate.Calling
		if p := s.Underway("n1"); (p != nil) != want || p != nil && p.Group != "sent" {
			t.Errorf("%v: %v on its node, want some: %t", phase, p, want)
		}
		if p := s.Underway("n2"); p != nil {
			t.Errorf("%v: %v on another node", phase, p)
		}
	}
	refused := decisionFor("n1", "sent")
	refused.Refusal = errRefused
	if p := history(podstate.Event{Kind: podstate.Decide, Decision: refused}).Underway("n1"); p != nil {
		t.Errorf("a refused decision takes %v", p)
	}
}

func TestTextsAreTheSchedulersAndTheUsersModesMayChange(t *testing.T) {
	all := map[string]string{wire.PodPlacement: "p", wire.PodAssigned: "a", wire.PodNode: "n", wire.UserMode: "mig", "other": "x"}
	texts := podstate.TextsOf(all)
	if got := texts.Annotations(); len(got) != 4 || podstate.TextsOf(got) != texts {
		t.Errorf("as annotations: %v", got)
	}
	if got := (podstate.Texts{Assigned: "a"}).Annotations(); len(got) != 1 {
		t.Errorf("empty texts are there: %v", got)
	}
	for key, same := range map[string]bool{wire.PodPlacement: false, wire.PodAssigned: false, wire.PodNode: false, wire.UserMode: true, "other": true} {
		changed := map[string]string{}
		for k, v := range all {
			changed[k] = v
		}
		changed[key] = "changed"
		if texts.SameIn(changed) != same {
			t.Errorf("%s changed: same %t", key, !same)
		}
	}
}
