// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"
)

// Plan says what would have to happen so that pods that wait start.
type Plan struct {
	// Answer is the first thing to read: one sentence.
	Answer string `json:"answer"`
	// For are the pods that wait, with their places or what keeps them waiting.
	For []Outcome `json:"for,omitempty"`
	// Devices is for how many devices the pod of For asks that would come, 0 for pods that wait.
	Devices int `json:"devices,omitempty"`
	// Steps are the pods that leave, in their order. None breaks off what the ones before it did.
	Steps []Step `json:"steps,omitempty"`
	// Work is how much work they lose at most, in seconds of one device.
	Work int64 `json:"work"`
	// Free counts nodes with free devices, if the plan is to bring those together.
	Free  []FreeDevices `json:"free,omitempty"`
	Notes []string      `json:"notes,omitempty"`
}

// FreeDevices counts the nodes that have so many devices free at least, before all steps and after
// them.
type FreeDevices struct {
	Devices int `json:"devices"`
	Before  int `json:"before"`
	After   int `json:"after"`
}

// Step is one pod that leaves its place.
type Step struct {
	Pod  string `json:"pod"`
	UID  string `json:"uid"`
	Node string `json:"node"`
	// To is where the pod is made again, "" for one that is evicted or finds no place.
	To string `json:"to,omitempty"`
	// Event is what the scheduler calls it: Moved, Preempted or Reclaimed.
	Event string `json:"event"`
	// Devices is how many shares of devices the pod has.
	Devices  int   `json:"devices"`
	Priority int32 `json:"priority"`
	// Runs is for how long it has run, Grace how long it may take to end, and Work how much work it
	// loses at most, times its devices: all in seconds.
	Runs  int64 `json:"runs"`
	Grace int64 `json:"grace"`
	Work  int64 `json:"work"`
	// Permitted says that the pod or its namespace allows it.
	Permitted bool `json:"permitted"`
}

// Starts reports whether all pods that wait would start.
func (l *Plan) Starts() bool {
	return !slices.ContainsFunc(l.For, func(o Outcome) bool { return o.Node == "" })
}

// Unasked are the steps that nobody has allowed.
func (l *Plan) Unasked() (steps []Step) {
	for _, s := range l.Steps {
		if !s.Permitted {
			steps = append(steps, s)
		}
	}
	return steps
}

// Conclude sums up the steps, and what they are for.
func (l *Plan) Conclude() {
	var grace int64
	for i := range l.Steps {
		l.Work, grace = l.Work+l.Steps[i].Work, max(grace, l.Steps[i].Grace)
	}
	moved := fmt.Sprintf("if %s moved (allowed so far: %d).", countText(len(l.Steps), "pod"), len(l.Steps)-len(l.Unasked()))
	end := fmt.Sprintf(" Pods have up to %s to end; up to %s of device time is lost.", secondsText(grace), secondsText(l.Work))
	if len(l.For) == 0 {
		l.Answer = "No moves bring more free devices together."
		if len(l.Steps) > 0 {
			l.Answer = "More devices would be free together " + moved + end
		}
		return
	}
	who, place := l.wishText(), l.placeText()
	switch {
	case !l.Starts():
		l.Answer = fmt.Sprintf("%s would not start, whichever pods of no higher priority moved: %s", who, l.firstReason())
		return
	case len(l.Steps) == 0:
		l.Answer = fmt.Sprintf("%s can start on %s: nobody has to leave.", who, place)
		return
	case len(l.Unasked()) == 0:
		l.Answer = fmt.Sprintf("%s can start on %s when %s left, which the scheduler sees to.", who, place, haveText(len(l.Steps)))
	default:
		l.Answer = fmt.Sprintf("%s could start on %s %s", who, place, moved)
	}
	l.Answer += end
}

func haveText(pods int) string {
	if pods == 1 {
		return "1 pod has"
	}
	return countText(pods, "pod") + " have"
}

func (l *Plan) wishText() string {
	switch {
	case l.For[0].Was == Added:
		return fmt.Sprintf("A pod with %s", countText(l.Devices, "device"))
	case len(l.For) == 1:
		return l.For[0].Pod
	}
	return fmt.Sprintf("%s and %d more of its group", l.For[0].Pod, len(l.For)-1)
}

// placeText names the nodes of the pods that wait, as far as a sentence can.
func (l *Plan) placeText() string {
	var nodes []string
	for i := range l.For {
		nodes = append(nodes, l.For[i].Node)
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) > 3 {
		return countText(len(nodes), "node")
	}
	return strings.Join(nodes, ", ")
}

// firstReason is what keeps the first pod waiting that would wait.
func (l *Plan) firstReason() string {
	i := slices.IndexFunc(l.For, func(o Outcome) bool { return o.Node == "" })
	return l.For[i].Why
}

// Text writes it for people.
func (l *Plan) Text(p Paint) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", plainText(l.Answer))
	if len(l.Steps) > 0 {
		b.WriteByte('\n')
		t := table{}
		t.addRow("POD", "NODE", "TO", "DEVICES", "PRIORITY", "RUNS FOR", "WORK LOST", "ALLOWED")
		for i := range l.Steps {
			s := &l.Steps[i]
			t.addRow(s.Pod, s.Node, orDash(s.To), itoa(s.Devices), fmt.Sprint(s.Priority), secondsText(s.Runs), secondsText(s.Work), yesOrNo(s.Permitted))
		}
		t.writeRows(&b, p)
	}
	if len(l.Free) > 0 {
		b.WriteByte('\n')
		t := table{}
		t.addRow("FREE ON ONE NODE", "NODES NOW", "NODES AFTER")
		for _, f := range l.Free {
			t.addRow(countText(f.Devices, "device")+" or more", itoa(f.Before), itoa(f.After))
		}
		t.writeRows(&b, p)
	}
	for _, n := range l.Notes {
		fmt.Fprintf(&b, "%s\n", p.faint(plainText(n)))
	}
	return b.String()
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// secondsText writes seconds by their two largest units: 3h12m.
func secondsText(n int64) string {
	for _, unit := range []struct {
		seconds, smaller int64
		names            string
	}{{86_400, 3600, "dh"}, {3600, 60, "hm"}, {60, 1, "ms"}} {
		if n < unit.seconds {
			continue
		}
		text := fmt.Sprintf("%d%c", n/unit.seconds, unit.names[0])
		if rest := n % unit.seconds / unit.smaller; rest > 0 {
			text += fmt.Sprintf("%d%c", rest, unit.names[1])
		}
		return text
	}
	return fmt.Sprintf("%ds", n)
}
