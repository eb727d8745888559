// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/hamicore"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// partly is a device of a model with this much memory taken.
func partly(index int, model string, gib int64) (sharing.Device, sharing.Share) {
	d := sharingtest.Device(index, model, sharing.HAMiCore)
	return d, sharing.Share{Device: d.ID, Mode: d.Mode, Memory: sharing.Bytes(gib) * sharing.GiB}
}

// A percentage is of the device that is chosen, so the smallest one decides what it may
// come to, in whichever order the devices are.
func TestTheSummaryOfDevicesOfDifferentSize(t *testing.T) {
	percent := func(p sharing.Percent) *sharing.PodRequest {
		req := sharingtest.Ask("main", 0, 0)
		req.Memory = sharing.PercentMemory(p)
		return sharingtest.Pod("p", req)
	}
	full := sharingtest.Device(0, "A30", sharing.MIG)
	all := sharing.Share{
		Device: full.ID, Mode: full.Mode, Memory: sharing.MiBs(23344), Cores: 100,
		Partition: sharing.Partition{Profile: "4g.24gb", Size: 4, Geometry: "group3"},
	}
	small, onSmall := partly(0, "T4", 5) // 10 GiB of 15 are free
	large, onLarge := partly(1, "A100-80", 75)
	second, onSecond := partly(0, "A100-80", 70)
	for says, c := range map[string]struct {
		devices []sharing.Device
		held    []sharing.Share
		percent sharing.Percent
		refuses bool
	}{
		"enough of the smallest, which is the first": {[]sharing.Device{small, large}, []sharing.Share{onSmall, onLarge}, 60, false},
		"enough of the smallest, which is the last":  {[]sharing.Device{large, small}, []sharing.Share{onLarge, onSmall}, 60, false},
		"too much of the smallest":                   {[]sharing.Device{small, large}, []sharing.Share{onSmall, onLarge}, 70, true},
		"too much of large ones":                     {[]sharing.Device{second, large}, []sharing.Share{onSecond, onLarge}, 60, true},
		"a little of large ones":                     {[]sharing.Device{second, large}, []sharing.Share{onSecond, onLarge}, 12, false},
		"of a device that is cut and full":           {[]sharing.Device{full}, []sharing.Share{all}, 10, true},
		"of a device that is cut and empty":          {[]sharing.Device{full}, nil, 10, false},
	} {
		l := sharing.NewLedger(sharingtest.Node("n1", c.devices...), factory.New())
		for _, s := range c.held {
			l.Record(sharing.Owner("on "+s.Device), sharingtest.Give("main", s))
		}
		summary := place.Summarize(l.Views())
		if got := summary.Refuses(percent(c.percent)); got != c.refuses {
			t.Errorf("%s: refused %v", says, got)
		}
		binpack, _ := policy.Named("binpack")
		if _, r := place.Place(l.Views(), percent(c.percent), factory.New(), binpack); !r.Refused() && c.refuses {
			t.Errorf("%s: it can be placed", says)
		}
	}
}

// counting counts how often its backend is asked.
type counting struct {
	sharing.Backend
	asked *int
}

func (c counting) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	*c.asked++
	return c.Backend.Fit(v, req)
}

// searched places three small containers and one that needs the only large device,
// which is the one that every container prefers.
func searched(t *testing.T, small, containers int, alike bool) (refused bool, asked int) {
	t.Helper()
	devices := []sharing.Device{sharingtest.Device(0, "A100-80", sharing.HAMiCore)}
	for i := range small {
		d := sharingtest.Device(i+1, "T4", sharing.HAMiCore)
		if !alike {
			d.Memory -= sharing.Bytes(i+1) * sharing.MiB
		}
		devices = append(devices, d)
	}
	pod := sharingtest.Pod("p")
	for i := range containers {
		pod.Requests = append(pod.Requests, sharingtest.Ask(string(rune('a'+i)), 100, 0))
	}
	pod.Requests = append(pod.Requests, sharingtest.Ask("large", 81900, 0))
	backends := sharing.Backends{counting{hamicore.New(), &asked}}
	spread, _ := policy.Named("spread")
	views := sharing.NewLedger(sharingtest.Node("n1", devices...), backends).Views()
	_, refusals := place.Place(views, pod, backends, spread)
	return refusals.Refused(), asked
}

// Devices that are alike are tried once: with thirty of them the search would else give
// up before it leaves the large device to the container that needs it.
func TestDevicesThatAreAlikeAreTriedOnce(t *testing.T) {
	if refused, _ := searched(t, 30, 3, true); refused {
		t.Error("the search gave up")
	}
}

// A search gives up after a number of choices, however many there are.
func TestASearchEndsAfterSoManyChoices(t *testing.T) {
	refused, asked := searched(t, 30, 8, false)
	if !refused {
		t.Error("it was found, so this says nothing: let it be harder")
	}
	if most := 300 * 31; asked > most {
		t.Errorf("a backend was asked %d times, want at most %d", asked, most)
	}
}

func TestTheSummaryLetsThroughExactlyWhatIsLeft(t *testing.T) {
	d, on := partly(0, "A100-80", 30) // 50 GiB are left, and with it 60 percent
	on.Cores = 40
	bare := sharingtest.Device(1, "T4", sharing.HAMiCore)
	l := sharing.NewLedger(sharingtest.Node("n1", d, bare), factory.New())
	l.Record("other", sharingtest.Give("main", on))
	used := l.Views()[:1]
	for says, c := range map[string]struct {
		views   []sharing.View
		req     sharing.Request
		refuses bool
	}{
		"the memory that is left":              {used, sharingtest.Ask("main", 50*1024, 0), false},
		"a MiB more":                           {used, sharingtest.Ask("main", 50*1024+1, 0), true},
		"the compute that is left":             {used, sharingtest.Ask("main", 1, 60), false},
		"a percent more":                       {used, sharingtest.Ask("main", 1, 61), true},
		"all compute of the one that is empty": {l.Views(), sharingtest.Ask("main", 1, 100), false},
		"all compute of two":                   {l.Views(), several(sharingtest.Ask("main", 1, 100), 2), true},
		"all memory of the one that is empty":  {l.Views(), sharingtest.Ask("main", 0, 0), false},
		"all memory of two":                    {l.Views(), several(sharingtest.Ask("main", 0, 0), 2), true},
		"a little of both":                     {l.Views(), several(sharingtest.Ask("main", 1, 0), 2), false},
		"a little of three":                    {l.Views(), several(sharingtest.Ask("main", 1, 0), 3), true},
	} {
		summary := place.Summarize(c.views)
		if got := summary.Refuses(sharingtest.Pod("p", c.req)); got != c.refuses {
			t.Errorf("%s: refused %v", says, got)
		}
	}
}

func several(req sharing.Request, n int) sharing.Request {
	req.Count = n
	return req
}
