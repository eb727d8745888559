// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
)

func part(owner sharing.Owner, kind sharing.ContainerKind, profile string, start, size int, geometry string) sharing.Held {
	return sharing.Held{Owner: owner, Container: "main", Kind: kind, Share: sharing.Share{Device: "GPU-0", Mode: sharing.MIG, Memory: sharing.GiB,
		Partition: sharing.Partition{Profile: profile, Start: start, Size: size, Geometry: geometry}}}
}

func TestCutsAreThePlacesInUseWhateverTheirNames(t *testing.T) {
	const app, ini = sharing.App, sharing.Init
	d := sharingtest.Device(0, "A100-80", sharing.MIG) // 1g, 1g+me, 1g double, 2g, 3g, 4g, 7g
	cases := []struct {
		says   string
		held   []sharing.Held
		want   map[int]mark
		slices uint64
	}{
		{"nothing", nil, nil, 0},
		{"two, named after two geometries", []sharing.Held{part("a", app, "1g.10gb", 6, 1, "x"), part("b", app, "2g.20gb", 2, 2, "y")}, map[int]mark{6: 1, 2: 4}, 0b1001100},
		{"one without a name", []sharing.Held{part("a", app, "3g.40gb", 4, 4, "")}, map[int]mark{4: 5}, 0xf0},
		{"the variant, not the plain shape", []sharing.Held{part("a", app, "1g.10gb+me", 0, 1, "x")}, map[int]mark{0: 2}, 1},
		{"an init container's, used again", []sharing.Held{part("a", ini, "2g.20gb", 0, 2, "x"), part("a", app, "2g.20gb", 0, 2, "x")}, map[int]mark{0: 4}, 3},
		{"two that begin at one slice", []sharing.Held{part("a", ini, "2g.20gb", 0, 2, "x"), part("a", app, "1g.10gb", 0, 1, "x")}, map[int]mark{0: conflictMark}, 3},
		{"two, and then one of them again", []sharing.Held{part("a", ini, "2g.20gb", 0, 2, "x"), part("a", app, "1g.10gb", 0, 1, "x"), part("b", app, "1g.10gb", 0, 1, "x")}, map[int]mark{0: conflictMark}, 3},
		{"a profile the device has not", []sharing.Held{part("a", app, "1g.5gb", 3, 1, "x")}, map[int]mark{3: conflictMark}, 8},
		{"a size the profile has not", []sharing.Held{part("a", app, "1g.10gb", 3, 2, "x")}, map[int]mark{3: conflictMark}, 0x18},
		{"a start beyond the last", []sharing.Held{part("a", app, "1g.10gb", 40, 1, "x")}, map[int]mark{15: conflictMark}, 1 << 40},
		{"a start before the first", []sharing.Held{part("a", app, "1g.10gb", -1, 1, "x")}, map[int]mark{0: conflictMark}, ^uint64(0)},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			v := sharing.NewView(&d, c.held, sharing.Backends{New()})
			got, ok := sliceMarksOf(&v)
			for start := range marks {
				if got.markAt(start) != c.want[start] {
					t.Errorf("slice %d: %v, want %v", start, got.markAt(start), c.want[start])
				}
			}
			if !ok || takenSlices(&v) != c.slices {
				t.Errorf("%v, slices %b; want slices %b", ok, takenSlices(&v), c.slices)
			}
		})
	}
}

func TestAPartitionOfADeviceThatHasNoneCountsAsNobodys(t *testing.T) {
	d := sharingtest.Device(0, "T4", sharing.MIG)
	v := sharing.NewView(&d, []sharing.Held{part("a", sharing.App, "1g.10gb", 2, 1, "x")}, sharing.Backends{New()})
	if got, ok := sliceMarksOf(&v); !ok || got.markAt(2) != conflictMark || takenSlices(&v) != 1<<2 {
		t.Errorf("%v, slices %b", got, takenSlices(&v))
	}
}

func TestNothingIsCutBesideWhatHasNoPlace(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	for says, held := range map[string]sharing.Held{
		"a share that is no partition":         {Owner: "a", Share: sharing.Share{Device: d.ID, Mode: sharing.MIG, Memory: sharing.GiB}},
		"a partition whose place is not known": part("a", sharing.App, "", 0, 0, "group1"),
	} {
		v := sharing.NewView(&d, []sharing.Held{part("b", sharing.App, "1g.10gb", 0, 1, "x"), held}, sharing.Backends{New()})
		if _, ok := sliceMarksOf(&v); ok {
			t.Errorf("%s: something may be cut", says)
		}
		first := held.Share
		beside := sharing.NewView(&d, nil, sharing.Backends{New()})
		for _, kind := range []sharing.ContainerKind{sharing.Init, sharing.App} {
			if after := beside.After(kind, &first); must(sliceMarksOf(&after)) {
				t.Errorf("after %s: something may be cut", says)
			}
		}
	}
}

func must(_ sliceMarks, ok bool) bool { return ok }

func TestWhatAPodGotKeepsItsPlaceForItsNextContainers(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	empty := sharing.NewView(&d, nil, sharing.Backends{New()})
	got := part("a", sharing.App, "2g.20gb", 2, 2, "x").Share
	for kind, slices := range map[sharing.ContainerKind]uint64{sharing.App: 0b1100, sharing.Sidecar: 0b1100, sharing.Init: 0b1100} {
		after := empty.After(kind, &got)
		if in, ok := sliceMarksOf(&after); !ok || in.markAt(2) != 4 || takenSlices(&after) != slices {
			t.Errorf("kind %v: %v, %v, slices %b", kind, in, ok, takenSlices(&after))
		}
	}
	if in, _ := sliceMarksOf(&empty); in != (sliceMarks{}) {
		t.Error("the view before was changed")
	}
}

func TestAnInitContainersPlaceIsFreeForTheSamePartitionOnly(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	const single, double, pair, half = 0, 2, 3, 4 // 1g, 1g of two slices, 2g, 3g
	first, second := part("a", sharing.Init, "2g.20gb", 2, 2, "x").Share, part("a", sharing.App, "1g.10gb", 6, 1, "x").Share
	empty := sharing.NewView(&d, nil, sharing.Backends{New()})
	after := empty.After(sharing.Init, &first)
	later := after.After(sharing.Sidecar, &second)
	again := later.After(sharing.Sidecar, &first)
	beside := sharing.NewView(&d, []sharing.Held{part("a", sharing.Init, "2g.20gb", 2, 2, "x")}, sharing.Backends{New()})
	for says, c := range map[string]struct {
		v       sharing.View
		profile int
		p       sharing.Partition
		want    bool
	}{
		"the same partition":                     {after, pair, first.Partition, true},
		"another shape of the same slices":       {after, double, first.Partition, false},
		"a part of it":                           {after, single, sharing.Partition{Start: 2, Size: 1}, false},
		"more than it":                           {after, half, sharing.Partition{Start: 0, Size: 4}, false},
		"a place beside it":                      {after, pair, sharing.Partition{Start: 4, Size: 2}, true},
		"the same one when another place is had": {later, pair, first.Partition, true},
		"that other place":                       {later, single, second.Partition, false},
		"the same one when a sidecar has it too": {again, pair, first.Partition, false},
		"the same one for another pod":           {beside, pair, first.Partition, false},
	} {
		if got := isFree(&c.v, c.profile, c.p.Start, c.p.Slices()); got != c.want {
			t.Errorf("%s: free %v", says, got)
		}
	}
}

func TestDevicesAreAlikeIfTheyAllowTheSameAndTheSameIsInUse(t *testing.T) {
	base := sharingtest.Device(0, "A100-80", sharing.MIG)
	edited := func(edit func(p *sharing.Partitioning)) *sharing.Device {
		d := sharingtest.Device(1, "A100-80", sharing.MIG)
		edit(d.MIG)
		return &d
	}
	profile := func(edit func(f *sharing.Profile)) *sharing.Device {
		return edited(func(p *sharing.Partitioning) { edit(&p.Profiles[1]) })
	}
	without := sharingtest.Device(1, "A100-80", sharing.MIG)
	without.MIG = nil
	for says, c := range map[string]struct {
		d    *sharing.Device
		want bool
	}{
		"itself":              {&base, true},
		"one of the same":     {edited(func(*sharing.Partitioning) {}), true},
		"another size":        {edited(func(p *sharing.Partitioning) { p.Slices++ }), false},
		"another policy":      {edited(func(p *sharing.Partitioning) { p.Policy = sharing.BestFit }), false},
		"no geometries":       {edited(func(p *sharing.Partitioning) { p.Geometries = nil }), false},
		"a geometry's name":   {edited(func(p *sharing.Partitioning) { p.Geometries[0].Name = "x" }), false},
		"a geometry's count":  {edited(func(p *sharing.Partitioning) { p.Geometries[0].Entries[0].Count++ }), false},
		"a profile's name":    {profile(func(f *sharing.Profile) { f.Name = "x" }), false},
		"a profile's memory":  {profile(func(f *sharing.Profile) { f.Memory++ }), false},
		"a profile's compute": {profile(func(f *sharing.Profile) { f.Compute++ }), false},
		"a profile's size":    {profile(func(f *sharing.Profile) { f.Size++ }), false},
		"a profile's maximum": {profile(func(f *sharing.Profile) { f.Max++ }), false},
		"a profile's starts":  {profile(func(f *sharing.Profile) { f.Starts = []int{0} }), false},
		"nothing known of it": {&without, false},
	} {
		v, w := sharing.NewView(&base, nil, sharing.Backends{New()}), sharing.NewView(c.d, nil, sharing.Backends{New()})
		if got := v.Alike(&w); got != c.want {
			t.Errorf("%s: %v", says, got)
		}
		if got := w.Alike(&v); got != c.want {
			t.Errorf("%s, the other way round: %v", says, got)
		}
	}
}

func TestDevicesAreAlikeByWhatThePodHasOnThem(t *testing.T) {
	d, e := sharingtest.Device(0, "A100-80", sharing.MIG), sharingtest.Device(1, "A100-80", sharing.MIG)
	v, w := sharing.NewView(&d, nil, sharing.Backends{New()}), sharing.NewView(&e, nil, sharing.Backends{New()})
	pair, single := part("a", sharing.Init, "2g.20gb", 2, 2, "x").Share, part("a", sharing.Init, "1g.10gb", 6, 1, "x").Share
	lost := sharing.Share{Device: d.ID, Mode: sharing.MIG}
	once := v.After(sharing.Init, &pair)
	twice := once.After(sharing.Init, &pair)
	for says, c := range map[string]struct {
		other sharing.View
		want  bool
	}{
		"the same partition":                      {w.After(sharing.Init, &pair), true},
		"the same one, used twice":                {twice, true},
		"another partition":                       {w.After(sharing.Init, &single), false},
		"the same one of an app container":        {w.After(sharing.App, &pair), false},
		"a share whose place nobody knows":        {w.After(sharing.Init, &lost), false},
		"the same and one whose place is unknown": {once.After(sharing.Init, &lost), false},
	} {
		if got := once.Alike(&c.other); got != c.want {
			t.Errorf("%s: %v", says, got)
		}
	}
	held := sharing.NewView(&e, []sharing.Held{part("b", sharing.App, "2g.20gb", 2, 2, "x")}, sharing.Backends{New()})
	if held.Alike(&held) {
		t.Error("names that others hold on a device count too, so it is like no other")
	}
}

func TestTheMostThatCanBeHadIsThatOfTheLargestProfileWithAPlace(t *testing.T) {
	d := sharingtest.Device(0, "A30", sharing.MIG)
	for says, c := range map[string]struct {
		held   []sharing.Held
		memory int64
		cores  sharing.Percent
	}{
		"of the empty device":            {nil, 24576, 100},
		"beside a 1g at its beginning":   {[]sharing.Held{part("a", sharing.App, "1g.6gb", 0, 1, "x")}, 12288, 50},
		"beside one in each half":        {[]sharing.Held{part("a", sharing.App, "1g.6gb", 0, 1, "x"), part("b", sharing.App, "1g.6gb", 3, 1, "x")}, 6144, 25},
		"of a device that is full":       {[]sharing.Held{part("a", sharing.App, "4g.24gb", 0, 4, "x")}, 0, 0},
		"of what an init container left": {[]sharing.Held{part("a", sharing.Init, "2g.12gb", 0, 2, "x")}, 12288, 50},
	} {
		v := sharing.NewView(&d, c.held, sharing.Backends{New()})
		left, empty := v.Most()
		if left != (sharing.Cost{Memory: sharing.MiBs(c.memory), Cores: c.cores}) || empty != (sharing.Cost{Memory: sharing.MiBs(24576), Cores: 100}) {
			t.Errorf("%s: %+v of %+v", says, left, empty)
		}
	}
	d.MIG.Profiles[0].Memory = 0 // not known: the name says it
	d.MIG.Profiles[3].Compute = 0
	v := sharing.NewView(&d, nil, sharing.Backends{New()})
	if left, empty := v.Most(); left != empty || left.Memory != sharing.MiBs(24576) || left.Cores != 100 {
		t.Errorf("%+v of %+v", left, empty)
	}
	for i := range d.MIG.Profiles {
		d.MIG.Profiles[i].Compute = 0
	}
	if left, empty := v.Most(); left.Cores != 0 || empty.Cores != 0 {
		t.Errorf("without compute: %+v of %+v", left, empty)
	}
}

func TestADeviceWithoutProfilesIsNotKnown(t *testing.T) {
	d := sharingtest.Device(0, "A30", sharing.MIG)
	for says, c := range map[string]struct {
		p    *sharing.Partitioning
		want bool
	}{"no partitioning": {nil, false}, "no profiles": {&sharing.Partitioning{Slices: 4}, false}, "an A30": {d.MIG, true}} {
		if got := (backend{}).IsKnown(&sharing.Device{MIG: c.p}); got != c.want {
			t.Errorf("%s: %v", says, got)
		}
	}
}

func TestADeviceIsWorthItsSlicesWhereTheBestFitIsLookedFor(t *testing.T) {
	d := sharingtest.Device(0, "A30", sharing.MIG)
	best := sharingtest.BestFit(d)
	for says, c := range map[string]struct {
		d    *sharing.Device
		want int64
	}{"first match": {&d, 0}, "best fit": {&best, 4000}, "no partitioning": {&sharing.Device{}, 0}} {
		if got := (backend{}).Worth(c.d); got != c.want {
			t.Errorf("%s: %d, want %d", says, got, c.want)
		}
	}
}

// A view that was made without the backend has no tally: nothing of it is given.
func TestNothingIsGivenOfADeviceThatNobodyCounts(t *testing.T) {
	d := sharingtest.Free(sharingtest.Device(0, "A100-80", sharing.MIG))
	v := sharing.NewView(&d, []sharing.Held{part("a", sharing.App, "7g.80gb", 0, 8, "free")}, nil)
	req := sharingtest.Ask("main", 1000, 0)
	if _, reason := New().Fit(&v, &req); reason != sharing.NoPartitionFits {
		t.Errorf("%v", reason)
	}
	if left, empty := v.Most(); v.Partitioned() || v.Worth() != 0 || left != (sharing.Cost{}) || empty != (sharing.Cost{}) {
		t.Errorf("it has a partitioner: %v, worth %d, %v of %v", v.Partitioned(), v.Worth(), left, empty)
	}
}
