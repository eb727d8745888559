// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strconv"
	"strings"
	"testing"

	"deviceshare/sharing"
)

func TestTheRule(t *testing.T) {
	const quiet = 60
	at := func(seconds int) Moment { return Moment(1000 + seconds) }
	cases := map[string]struct {
		state health
		sick  bool
	}{
		"new devices are healthy":                  {health{}, false},
		"a critical error breaks at once":          {health{}.afterFault(79, at(0)), true},
		"an answer soon after does not heal":       {health{}.afterFault(79, at(0)).afterAnswer(at(59), quiet), true},
		"an answer after the quiet time heals":     {health{}.afterFault(79, at(0)).afterAnswer(at(60), quiet), false},
		"another error starts the quiet time anew": {health{}.afterFault(79, at(0)).afterFault(48, at(50)).afterAnswer(at(70), quiet), true},
		"silence breaks at once":                   {health{}.afterSilence("lost"), true},
		"the first answer heals silence":           {health{}.afterSilence("lost").afterAnswer(at(1), quiet), false},
		"silence after an error waits for both":    {health{}.afterFault(79, at(0)).afterSilence("lost").afterAnswer(at(10), quiet), true},
		"silence outlasts the quiet time":          {health{}.afterFault(79, at(0)).afterAnswer(at(60), quiet).afterSilence("lost"), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.state.isBroken(); got != tc.sick {
				t.Errorf("broken: %v (%s), want %v", got, tc.state.cause, tc.sick)
			}
		})
	}
}

// working is a node on which these devices were found and answer.
func working(rules HealthRules, ids ...sharing.DeviceID) State {
	s := New(Config{Node: "n", Health: rules})
	var found []Facts
	for _, id := range ids {
		found = append(found, Facts{UUID: id, PCI: string(id)})
	}
	return Reduce(s, Scanned{Devices: found})
}

func broken(s State) int {
	n := 0
	for _, id := range s.IDs() {
		if c, _ := s.Condition(id); c.Kind == Broken {
			n++
		}
	}
	return n
}

func TestErrorsOfApplicationsDoNotCount(t *testing.T) {
	s := working(HealthRules{Ignored: ApplicationXIDs()}, "GPU-a")
	for _, xid := range ApplicationXIDs() {
		if broken(Reduce(s, Faulted{Device: "GPU-a", XID: xid})) != 0 {
			t.Errorf("XID %d counts", xid)
		}
	}
	if broken(Reduce(s, Faulted{Device: "GPU-a", XID: 79})) != 1 {
		t.Error("XID 79 does not count")
	}
	if broken(Reduce(working(HealthRules{IgnoreAll: true}, "GPU-a"), Faulted{Device: "GPU-a", XID: 79})) != 0 {
		t.Error("XID 79 counts although all are ignored")
	}
}

func TestAnErrorOfAnUnknownDeviceBreaksAll(t *testing.T) {
	s := Reduce(working(HealthRules{}, "GPU-a", "GPU-b"), Faulted{XID: 79, At: 1})
	if n := broken(s); n != 2 {
		t.Errorf("%d are broken", n)
	}
}

func TestTheNumbersOfIgnoredErrorsAreReadOrRefused(t *testing.T) {
	const quiet = Moment(60)
	for name, c := range map[string]struct {
		ignored []string
		counts  map[uint64]bool
	}{
		"nothing is ignored":               {nil, map[uint64]bool{13: true, 79: true}},
		"some are, with blanks around":     {[]string{"13", " 31 "}, map[uint64]bool{13: false, 31: false, 79: true}},
		"all are":                          {[]string{"13", "all"}, map[uint64]bool{13: false, 79: false}},
		"all are, in NVIDIA's older words": {[]string{"xids"}, map[uint64]bool{79: false}},
	} {
		rules, err := ReadHealthRules(c.ignored, quiet)
		if err != nil || rules.Quiet != quiet {
			t.Errorf("%s: %+v, %v", name, rules, err)
		}
		for xid, want := range c.counts {
			if rules.Counts(xid) != want {
				t.Errorf("%s: XID %d counts is %v", name, xid, !want)
			}
		}
	}
	for _, wrong := range []string{"x", "", "-1", "4294967296"} {
		if _, err := ReadHealthRules([]string{"13", wrong}, quiet); err == nil || !strings.Contains(err.Error(), strconv.Quote(wrong)) {
			t.Errorf("%q is read, %v", wrong, err)
		}
	}
}
