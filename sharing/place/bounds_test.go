// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"fmt"
	"math"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/hamicore"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/worth"
)

// renamed serves another mode by the rules of hami-core.
type renamed struct {
	sharing.Backend
	mode sharing.Mode
}

func (r renamed) Mode() sharing.Mode { return r.mode }

// A container of several devices gets them in the mode in which they score highest
// together, however many modes there are.
func TestSeveralDevicesComeFromTheBestOfAnyNumberOfModes(t *testing.T) {
	binpack, _ := policy.Named("binpack")
	for _, modes := range []int{1, 7, 8, 9, 20} {
		var backends sharing.Backends
		var devices []sharing.Device
		for m := range modes {
			mode := sharing.Mode(fmt.Sprintf("example.com/m%d", m))
			backends = append(backends, renamed{hamicore.New(), mode})
			for range 2 {
				devices = append(devices, sharingtest.Device(len(devices), "A100-80", mode))
			}
		}
		for best := range modes {
			l := sharing.NewLedger(sharingtest.Node("n1", devices...), backends)
			for _, d := range devices[2*best : 2*best+2] {
				s := sharing.Share{Device: d.ID, Mode: d.Mode, Memory: sharing.GiB}
				l.Record(sharing.Owner("on "+d.ID), sharingtest.Give("main", s))
			}
			req := sharingtest.Ask("main", 1000, 0)
			req.Count = 2
			placement, refusals := place.Place(l.Views(), sharingtest.Pod("p", req), backends, binpack)
			if refusals.Refused() {
				t.Fatalf("%d modes: %s", modes, refusals.String())
			}
			for i, s := range placement.Containers[0].Shares {
				if want := devices[2*best+i].ID; s.Device != want {
					t.Errorf("%d modes: device %d is %s, want %s", modes, i, s.Device, want)
				}
			}
			req.Count = 3
			if _, refusals = place.Place(l.Views(), sharingtest.Pod("p", req), backends, binpack); refusals.Found != 2 {
				t.Errorf("%d modes: %s", modes, refusals.String())
			}
		}
	}
}

// More shares are possible than a search keeps: the best ones are kept, and the one
// that is needed is among them.
func TestASearchKeepsTheBestOfMoreChoicesThanItHasRoomFor(t *testing.T) {
	spread, _ := policy.Named("spread")
	for _, others := range []int{1, 62, 63, 64, 90} {
		devices := []sharing.Device{sharingtest.Device(0, "A100-80", sharing.HAMiCore)}
		for i := range others {
			d := sharingtest.Device(i+1, "T4", sharing.HAMiCore)
			d.Memory -= sharing.Bytes(i) * sharing.MiB // no two are alike
			devices = append(devices, d)
		}
		views := sharing.NewLedger(sharingtest.Node("n1", devices...), factory.New()).Views()
		pod := sharingtest.Pod("p", sharingtest.Ask("small", 100, 0), sharingtest.Ask("large", 80000, 0))
		placement, refusals := place.Place(views, pod, factory.New(), spread)
		if refusals.Refused() {
			t.Fatalf("%d small devices: %s", others, refusals.String())
		}
		small, large := placement.Containers[0].Shares[0], placement.Containers[1].Shares[0]
		if small.Device == "GPU-0" && others > 0 && small.Memory+large.Memory > devices[0].Memory || large.Device != "GPU-0" {
			t.Errorf("%d small devices: %+v and %+v", others, small, large)
		}
	}
}

func TestTheScoreOfANodeWhereOnlySomeDevicesForecastALoss(t *testing.T) {
	parts, plain := cut(0), sharingtest.Device(1, "A100-80", sharing.HAMiCore)
	l := sharing.NewLedger(sharingtest.Node("n1", parts, plain), factory.New())
	l.Record("other", sharingtest.Give("main", sharing.Share{Device: plain.ID, Mode: plain.Mode, Memory: 40 * sharing.GiB, Cores: 50}))
	binpack, _ := policy.Named("binpack")
	score := func(pod *sharing.PodRequest) float64 { return scoreOf(l, pod, binpack) }
	pod := func(modes []sharing.Mode, requests ...sharing.Request) *sharing.PodRequest {
		return inModes(sharingtest.Pod("p", requests...), modes...)
	}
	small, most, tooLarge := sharingtest.Ask("small", 4000, 0), sharingtest.Ask("most", 39000, 49), sharingtest.Ask("large", 90000, 0)
	most.Memory = sharing.AbsoluteMemory(41 * sharing.GiB) // too large beside the other, on any device but the parts
	forecast := score(pod([]sharing.Mode{sharing.MIG}, small))
	if forecast <= 50 || forecast > 100 {
		t.Fatalf("a small partition of an empty device scores %v", forecast)
	}
	asItIs := binpack.Node(worth.Host{Views: l.Views()}, sharingtest.Pod("p"), nil, worth.Amounts{})
	for says, c := range map[string]struct {
		modes    []sharing.Mode
		requests []sharing.Request
		want     float64
	}{
		"the device without a forecast":      {[]sharing.Mode{sharing.HAMiCore}, []sharing.Request{small}, 50},
		"no device of the modes":             {[]sharing.Mode{sharing.MPS, sharing.TimeSlicing}, []sharing.Request{small}, 0},
		"none in the first mode":             {[]sharing.Mode{sharing.MPS, sharing.MIG}, []sharing.Request{small}, forecast},
		"the first mode counts":              {[]sharing.Mode{sharing.MIG, sharing.HAMiCore}, []sharing.Request{small}, forecast},
		"the second, as it fits in the mode": {[]sharing.Mode{sharing.HAMiCore, sharing.MIG}, []sharing.Request{most}, score(pod([]sharing.Mode{sharing.MIG}, most))},
		"it fits in none of the modes":       {[]sharing.Mode{sharing.MIG, sharing.HAMiCore}, []sharing.Request{tooLarge}, asItIs},
		"one of its containers fits nowhere": {[]sharing.Mode{sharing.MIG}, []sharing.Request{small, tooLarge}, 0},
		"any mode, and it fits in none":      {nil, []sharing.Request{tooLarge}, asItIs},
	} {
		if got := score(pod(c.modes, c.requests...)); got != c.want {
			t.Errorf("%s: %v, want %v", says, got, c.want)
		}
	}
}

// Of two containers one gets a device with a forecast and one a device without: the
// score is the mean of how little the first loses and of the policy's score of the node.
func TestTheScoreOfAPodOnDevicesWithAForecastAndWithout(t *testing.T) {
	parts, plain := cut(0), sharingtest.Device(1, "A100-80", sharing.HAMiCore)
	l := sharing.NewLedger(sharingtest.Node("n1", parts, plain), factory.New())
	binpack, _ := policy.Named("binpack")
	half := sharingtest.Pod("half", sharingtest.Ask("main", 1000, 50)) // of 7 slices of compute it needs 4
	half.Modes = []sharing.Mode{sharing.MIG}
	placement, refusals := place.Place(l.Views(), half, factory.New(), binpack)
	if refusals.Refused() {
		t.Fatal(refusals.String())
	}
	l.Record("half", placement)
	score := func(requests ...sharing.Request) float64 {
		return scoreOf(l, sharingtest.Pod("p", requests...), binpack)
	}
	small, compute := sharingtest.Ask("small", 4000, 0), sharingtest.Ask("compute", 1000, 45)
	node := binpack.Node(worth.Host{Views: l.Views()}, sharingtest.Pod("p"), nil, worth.Amounts{})
	if got := score(compute); got != node {
		t.Errorf("on the device without a forecast it scores %v, the node %v", got, node)
	}
	// A partition of several shares loses its part of the device: here an eighth.
	if got, want := score(small, compute), (87.5+node)/2; math.Abs(got-want) > 1 || score(small) <= node {
		t.Errorf("both score %v, want about %v: the mean of 87.5 and %v", got, want, node)
	}
}

func TestDevicesOfOneNUMANodeComeTogetherWhicheverItIs(t *testing.T) {
	for says, c := range map[string]struct {
		numa [4]int
		want [2]sharing.DeviceID
	}{
		"the first NUMA node":     {[4]int{0, 1, 2, 0}, [2]sharing.DeviceID{"GPU-0", "GPU-3"}},
		"the second":              {[4]int{0, 1, 1, 2}, [2]sharing.DeviceID{"GPU-1", "GPU-2"}},
		"only that of two others": {[4]int{-1, 0, 0, -1}, [2]sharing.DeviceID{"GPU-1", "GPU-2"}},
		"none is known":           {[4]int{-1, -1, -1, -1}, [2]sharing.DeviceID{"GPU-0", "GPU-1"}},
		"nobody else is on it":    {[4]int{0, 1, 2, 3}, [2]sharing.DeviceID{"GPU-0", "GPU-1"}},
		"all of them are on one":  {[4]int{0, 0, 0, 0}, [2]sharing.DeviceID{"GPU-0", "GPU-1"}},
	} {
		var devices []sharing.Device
		for i, n := range c.numa {
			d := sharingtest.Device(i, "A100-80", sharing.HAMiCore)
			d.NUMA = n
			devices = append(devices, d)
		}
		req := sharingtest.Ask("main", 1000, 0)
		req.Count = 2
		shares := onNode(t, devices...).place(sharingtest.Pod("p", req)).Containers[0].Shares
		if got := [2]sharing.DeviceID{shares[0].Device, shares[1].Device}; got != c.want {
			t.Errorf("%s: %s and %s, want %v", says, shares[0].Device, shares[1].Device, c.want)
		}
	}
}
