// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"
	"testing"
)

func TestSecondsAreWrittenByTheirTwoLargestUnits(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0s", 59: "59s", 60: "1m", 61: "1m1s", 3599: "59m59s", 3600: "1h", 3660: "1h1m", 3601: "1h", 86_400: "1d", 90_000: "1d1h", 864_000: "10d",
	} {
		if got := secondsText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestAPlanIsOneSentenceForWhoeverStarts(t *testing.T) {
	at := func(pod, node string) Outcome { return Outcome{Pod: pod, Was: Waited, Node: node} }
	moved := Step{Pod: "ml/x", Node: "a", To: "b", Grace: 30, Work: 60}
	allowed := moved
	allowed.Permitted = true
	for want, l := range map[string]Plan{
		"ml/a can start on n: nobody has to leave.":                                             {For: []Outcome{at("ml/a", "n")}},
		"A pod with 1 device can start on n: nobody has to leave.":                              {Devices: 1, For: []Outcome{{Pod: "default/p", Was: Added, Node: "n"}}},
		"ml/a and 2 more of its group could start on n, o if 2 pods moved (allowed so far: 1).": {For: []Outcome{at("ml/a", "o"), at("ml/b", "n"), at("ml/c", "n")}, Steps: []Step{moved, allowed}},
		"ml/a and 3 more of its group could start on 4 nodes if 1 pod moved (allowed so far: 0).": {
			For: []Outcome{at("ml/a", "n"), at("ml/b", "o"), at("ml/c", "p"), at("ml/d", "q")}, Steps: []Step{moved},
		},
		"ml/a can start on n when 2 pods have left, which the scheduler sees to.":    {For: []Outcome{at("ml/a", "n")}, Steps: []Step{allowed, allowed}},
		"ml/a would not start, whichever pods of no higher priority moved: no room.": {For: []Outcome{{Pod: "ml/a", Why: "no room."}}, Steps: []Step{moved}},
		"No moves bring more free devices together.":                                 {},
	} {
		l.Conclude()
		if !strings.HasPrefix(l.Answer, want) {
			t.Errorf("got %s\nwant %s", l.Answer, want)
		}
		if costs := strings.HasSuffix(l.Answer, "s to end; up to "+secondsText(l.Work)+" of device time is lost."); costs != (len(l.Steps) > 0 && l.Starts()) {
			t.Errorf("of the costs it says: %s", l.Answer)
		}
	}
}

// Names in a capture are whatever somebody wrote there.
func TestAPlanWritesNoControlCharacters(t *testing.T) {
	l := Plan{For: []Outcome{{Pod: "ml/\x1b[31m", Node: "n"}}, Steps: []Step{{Pod: "a\x07b", Node: "\x1b]0;", To: "x\ny"}}, Notes: []string{"\x1b"}}
	l.Conclude()
	if text := l.Text(Paint{}); strings.ContainsAny(text, "\x1b\x07") || strings.Contains(text, "x\ny") {
		t.Errorf("it writes %q", text)
	}
}
