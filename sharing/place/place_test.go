// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// mixed is a node with two devices of each mode.
func mixed(t *testing.T) *bench {
	var devices []sharing.Device
	for i, m := range sharing.Modes() {
		devices = append(devices, sharingtest.Device(2*i, "A30", m), sharingtest.Device(2*i+1, "A30", m))
	}
	return onNode(t, devices...)
}

func inModes(pod *sharing.PodRequest, modes ...sharing.Mode) *sharing.PodRequest {
	pod.Modes = modes
	return pod
}

// Most nodes refuse most pods, many times a second. One view is allocated if a
// backend must be asked about a device that has a share of the pod already.
func TestRefusingAllocatesNothingButOneView(t *testing.T) {
	full := mixed(t)
	for i := range 8 {
		full.place(sharingtest.Pod(fmt.Sprint("holder-", i), sharingtest.Ask("main", 0, 0)))
	}
	linked := sharingtest.Pod("linked", sharingtest.Times(2, sharingtest.Ask("a", 20000, 0)), sharingtest.Ask("b", 20000, 0))
	cases := map[string]struct {
		b   *bench
		pod *sharing.PodRequest
		n   float64
	}{
		"every device is full":            {full, sharingtest.Pod("p", sharingtest.Ask("main", 100, 0)), 0},
		"no device is large enough":       {mixed(t), sharingtest.Pod("p", sharingtest.Ask("main", 30000, 0)), 0},
		"no device is in the mode":        {onNode(t, sharingtest.Device(0, "A30", sharing.MPS)), inModes(sharingtest.Pod("p", sharingtest.Ask("main", 100, 0)), sharing.MIG, sharing.HAMiCore), 0},
		"too many devices asked":          {mixed(t), sharingtest.Pod("p", sharingtest.Times(9, sharingtest.Ask("main", 100, 0))), 0},
		"too many of one mode":            {mixed(t), sharingtest.Pod("p", sharingtest.Times(3, sharingtest.Ask("main", 100, 0))), 0},
		"the second container":            {mixed(t), sharingtest.Pod("p", sharingtest.Ask("a", 100, 0), sharingtest.Ask("b", 30000, 0)), 1},
		"the second beside the first":     {onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore)), sharingtest.Pod("p", sharingtest.Ask("a", 20000, 0), sharingtest.Ask("b", 20000, 0)), 0},
		"the second, after a search":      {onNode(t, sharingtest.Device(0, "A30", sharing.MIG), sharingtest.Device(1, "A30", sharing.MIG)), sharingtest.Pod("p", sharingtest.Times(2, sharingtest.Ask("a", 11000, 0)), sharingtest.Ask("b", 20000, 0)), 1},
		"in each of two modes":            {mixed(t), inModes(linked, sharing.HAMiCore, sharing.MPS), 0},
		"in modes, each with a search":    {onNode(t, sharingtest.Device(0, "A30", sharing.MIG), sharingtest.Device(1, "A30", sharing.MPS)), inModes(sharingtest.Pod("p", sharingtest.Ask("a", 11000, 0), sharingtest.Ask("b", 20000, 0)), sharing.MIG, sharing.MPS), 1},
		"the third beside the others":     {onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore)), sharingtest.Pod("p", sharingtest.Ask("a", 9000, 0), sharingtest.Ask("b", 9000, 0), sharingtest.Ask("c", 9000, 0)), 1},
		"the second, which is divided":    {onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore)), sharingtest.Pod("p", sharingtest.Ask("a", 100, 0), sharingtest.Ask("b", 30000, 0)), 0},
		"the selector leaves nothing":     {mixed(t), &sharing.PodRequest{Requests: linked.Requests, Selector: sharing.Selector{NotIDs: []sharing.DeviceID{"GPU-0"}, UseIDs: []sharing.DeviceID{"GPU-0"}}}, 0},
		"free partitions, after a search": {onNode(t, sharingtest.Free(sharingtest.Device(0, "A30", sharing.MIG))), sharingtest.Pod("p", sharingtest.Ask("a", 11000, 0), sharingtest.Ask("b", 20000, 0)), 1},
	}
	for says, c := range cases {
		t.Run(says, func(t *testing.T) {
			views, backends := c.b.ledger.Views(), factory.New()
			if _, r := place.Place(views, c.pod, backends, c.b.policy); !r.Refused() {
				t.Fatal("it is placed")
			}
			if n := testing.AllocsPerRun(50, func() { place.Place(views, c.pod, backends, c.b.policy) }); n != c.n {
				t.Errorf("%v allocations, want %v", n, c.n)
			}
		})
	}
}

func TestEqualScoresAreDecidedByModeThenByDevice(t *testing.T) {
	small := func(owner string) *sharing.PodRequest {
		return sharingtest.Pod(owner, sharingtest.Times(1, sharing.Request{Container: "main", Count: 1, Memory: sharing.PercentMemory(50)}))
	}
	b := onNode(t, sharingtest.Device(5, "T4", sharing.TimeSlicing), sharingtest.Device(6, "T4", sharing.MPS),
		sharingtest.Device(7, "T4", sharing.HAMiCore), sharingtest.Device(8, "T4", sharing.HAMiCore))
	for range 3 {
		if p, _ := b.try(small("p")); first(p).Device != "GPU-7" {
			t.Errorf("%+v: want the first device of the mode that isolates most", p)
		}
	}
	p, _ := b.try(sharingtest.Pod("p", sharingtest.Times(2, sharingtest.Ask("main", 0, 0))))
	if len(p.Containers) == 0 || p.Containers[0].Shares[0].Mode != sharing.HAMiCore {
		t.Errorf("%+v: only one mode has two devices", p)
	}
}

func TestSeveralDevicesAreOfTheModeThatScoresHighestTogether(t *testing.T) {
	pair := sharingtest.Pod("p", sharingtest.Times(2, sharingtest.Ask("main", 1000, 0)))
	mode := func(b *bench) sharing.Mode {
		p, r := b.try(pair)
		if r.Refused() {
			t.Fatal(r.String())
		}
		return p.Containers[0].Shares[0].Mode
	}
	b := onNode(t, sharingtest.Device(0, "A30", sharing.TimeSlicing), sharingtest.Device(1, "A30", sharing.TimeSlicing),
		sharingtest.Device(2, "A30", sharing.HAMiCore), sharingtest.Device(3, "A30", sharing.HAMiCore))
	if got := mode(b); got != sharing.HAMiCore {
		t.Errorf("%s: equal scores are decided by the order of the modes", got)
	}
	picky := sharingtest.Pod("there", sharingtest.Ask("main", 9000, 0))
	picky.Selector.UseIDs = []sharing.DeviceID{"GPU-1"}
	b.place(picky)
	if got := mode(b); got != sharing.TimeSlicing {
		t.Errorf("%s: binpack fills the devices in use", got)
	}
	b.policy, _ = policy.Named("spread")
	if got := mode(b); got != sharing.HAMiCore {
		t.Errorf("%s: spread avoids them", got)
	}
}

// The whole pod is tried in one mode before the next, even if one container
// would fit in a mode named earlier.
func TestModesAreTriedInTheOrderOfThePod(t *testing.T) {
	pod := func(modes ...sharing.Mode) *sharing.PodRequest {
		return inModes(sharingtest.Pod("p", sharingtest.Ask("a", 5000, 0), sharingtest.Ask("b", 20000, 0)), modes...)
	}
	b := onNode(t, sharingtest.Device(0, "A30", sharing.MIG), sharingtest.Device(1, "A30", sharing.MPS),
		sharingtest.Device(2, "A30", sharing.HAMiCore), sharingtest.Device(3, "A30", sharing.HAMiCore))
	for want, modes := range map[sharing.Mode][]sharing.Mode{
		sharing.HAMiCore: {sharing.MIG, sharing.MPS, sharing.HAMiCore},
	} {
		p, r := b.try(pod(modes...))
		if r.Refused() || p.Containers[0].Shares[0].Mode != want || p.Containers[1].Shares[0].Mode != want {
			t.Errorf("%v: %+v %s", modes, p, r.String())
		}
	}
	if _, r := b.try(pod(sharing.MIG, sharing.MPS)); !r.Refused() || r.Container != "b" {
		t.Errorf("%s", r.String())
	}
	if p, r := b.try(pod()); r.Refused() {
		t.Errorf("without modes the containers may be in different ones: %+v %s", p, r.String())
	}
}

func TestTheRefusalIsAboutTheContainerThatCanBeHelpedLeast(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore))
	cases := map[string]struct {
		pod  *sharing.PodRequest
		want string
	}{
		"the first that does not fit beside the others": {sharingtest.Pod("p", sharingtest.Ask("a", 9000, 0), sharingtest.Ask("b", 9000, 0), sharingtest.Ask("c", 9000, 0)), "c"},
		"one that fits nowhere, before it":              {sharingtest.Pod("p", sharingtest.Ask("a", 20000, 0), sharingtest.Ask("b", 20000, 0), sharingtest.Ask("c", 30000, 0)), "c"},
		"the first of two that fit nowhere":             {sharingtest.Pod("p", sharingtest.Ask("a", 30000, 0), sharingtest.Times(2, sharingtest.Ask("b", 1, 0))), "a"},
	}
	for says, c := range cases {
		if _, r := b.try(c.pod); r.Container != c.want {
			t.Errorf("%s: %s", says, r.String())
		}
	}
}

func TestTheRefusalIsThatOfTheModeThatGotFurthest(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A30", sharing.MIG), sharingtest.Device(1, "A30", sharing.MIG), sharingtest.Device(2, "A30", sharing.TimeSlicing))
	three := sharingtest.Times(3, sharingtest.Ask("wide", 100, 0))
	if _, r := b.try(inModes(sharingtest.Pod("p", three), sharing.MIG, sharing.TimeSlicing)); r.Found != 2 || r.Count[sharing.InAnotherMode] != 1 {
		t.Errorf("equally far, the mode named first: %s", r.String())
	}
	if _, r := b.try(inModes(sharingtest.Pod("p", three), sharing.TimeSlicing, sharing.MIG)); r.Found != 1 || r.Count[sharing.InAnotherMode] != 2 {
		t.Errorf("equally far, the mode named first: %s", r.String())
	}
	pod := sharingtest.Pod("p", sharingtest.Times(2, sharingtest.Ask("pair", 100, 0)), sharingtest.Ask("large", 30000, 0))
	if _, r := b.try(inModes(pod, sharing.TimeSlicing, sharing.MIG)); r.Container != "large" || r.Count[sharing.WrongMode] != 0 {
		t.Errorf("mig places the first container, time-slicing does not: %s", r.String())
	}
}

func TestAPodThatAsksForNothingIsPlacedWithNothing(t *testing.T) {
	if p, r := mixed(t).try(&sharing.PodRequest{}); r.Refused() || len(p.Containers) != 0 {
		t.Errorf("%+v %s", p, r.String())
	}
}

// What the summary says no to, Place refuses; for ordinary pods on ordinary nodes
// it says no whenever Place does.
func TestTheSummaryRefusesOnlyWhatPlaceRefuses(t *testing.T) {
	full := mixed(t)
	for i := range 8 {
		full.place(sharingtest.Pod(fmt.Sprint("holder-", i), sharingtest.Ask("main", 0, 0)))
	}
	busy := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore), sharingtest.Device(1, "A30", sharing.HAMiCore))
	for i := range 4 {
		busy.place(sharingtest.Pod(fmt.Sprint("holder-", i), sharingtest.Ask("main", 9000, 40)))
	}
	blocked := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore))
	blocked.ledger.Block("unreadable")
	sick := sharingtest.Device(0, "A30", sharing.HAMiCore)
	sick.Healthy = false
	percent := sharing.Request{Container: "main", Count: 1, Memory: sharing.PercentMemory(50)}
	cases := []struct {
		says string
		b    *bench
		pod  *sharing.PodRequest
		want bool
	}{
		{"a full node", full, sharingtest.Pod("p", sharingtest.Ask("main", 1, 0)), true},
		{"an empty node", mixed(t), sharingtest.Pod("p", sharingtest.Ask("main", 1, 0)), false},
		{"no devices", onNode(t), sharingtest.Pod("p", sharingtest.Ask("main", 1, 0)), true},
		{"only a sick device", onNode(t, sick), sharingtest.Pod("p", sharingtest.Ask("main", 1, 0)), true},
		{"a blocked node", blocked, sharingtest.Pod("p", sharingtest.Ask("main", 1, 0)), true},
		{"memory no device has left", busy, sharingtest.Pod("p", sharingtest.Ask("main", 7000, 0)), true},
		{"memory a device has left", busy, sharingtest.Pod("p", sharingtest.Ask("main", 6000, 0)), false},
		{"compute no device has left", busy, sharingtest.Pod("p", sharingtest.Ask("main", 100, 21)), true},
		{"a percentage no device has left", busy, sharingtest.Pod("p", percent), true},
		{"a whole device where none is empty", busy, sharingtest.Pod("p", sharingtest.Ask("main", 0, 0)), true},
		{"all compute where none is empty", busy, sharingtest.Pod("p", sharingtest.Ask("main", 1, 100)), true},
		{"more devices than there are", busy, sharingtest.Pod("p", sharingtest.Times(3, sharingtest.Ask("main", 1, 0))), true},
		{"a mode the node lacks", busy, inModes(sharingtest.Pod("p", sharingtest.Ask("main", 1, 0)), sharing.MIG), true},
		{"a mode nobody knows", busy, inModes(sharingtest.Pod("p", sharingtest.Ask("main", 1, 0)), "shared"), true},
		{"one of two modes", busy, inModes(sharingtest.Pod("p", sharingtest.Ask("main", 1, 0)), sharing.MIG, sharing.HAMiCore), false},
		{"the second container", busy, sharingtest.Pod("p", sharingtest.Ask("a", 1, 0), sharingtest.Ask("b", 7000, 0)), true},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			s := place.Summarize(c.b.ledger.Views())
			if got := s.Refuses(c.pod); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if _, r := c.b.try(c.pod); r.Refused() != c.want {
				t.Errorf("Place: %s", r.String())
			}
			if n := testing.AllocsPerRun(10, func() { s.Refuses(c.pod) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// A node with more devices than any has, and pods that ask for all of them.
func TestThereIsNoLimitOnDevicesOrContainers(t *testing.T) {
	var devices []sharing.Device
	for i := range 100 {
		devices = append(devices, sharingtest.Device(i, "T4", []sharing.Mode{sharing.HAMiCore, sharing.TimeSlicing}[i/90]))
	}
	b := onNode(t, devices...)
	p := b.place(sharingtest.Pod("wide", sharingtest.Times(90, sharingtest.Ask("main", 1000, 0))))
	if len(p.Containers[0].Shares) != 90 {
		t.Errorf("%d shares", len(p.Containers[0].Shares))
	}
	b.refused(sharingtest.Pod("wider", sharingtest.Times(91, sharingtest.Ask("main", 1000, 0))), sharing.InAnotherMode)
	deep := sharingtest.Pod("deep")
	for i := range 60 {
		deep.Requests = append(deep.Requests, sharingtest.Ask(fmt.Sprint("c", i), 14000, 0))
	}
	b.place(deep)
}

func TestPoliciesDecideWithinThePlacement(t *testing.T) {
	for name, want := range map[string]sharing.DeviceID{"binpack": "GPU-1", "spread": "GPU-0"} {
		b := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore), sharingtest.Device(1, "A30", sharing.HAMiCore))
		picky := sharingtest.Pod("there", sharingtest.Ask("main", 1000, 0))
		picky.Selector.UseIDs = []sharing.DeviceID{"GPU-1"}
		b.place(picky)
		b.policy, _ = policy.Named(name)
		if got := first(b.place(sharingtest.Pod("pod", sharingtest.Ask("main", 1000, 0)))).Device; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
