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
		{"two that begin at one slice", []sharing.Held{part("a", ini, "2g.20gb", 0, 2, "x"), part("a", app, "1g.10gb", 0, 1, "x")}, map[int]mark{0: uncommon}, 3},
		{"two, and then one of them again", []sharing.Held{part("a", ini, "2g.20gb", 0, 2, "x"), part("a", app, "1g.10gb", 0, 1, "x"), part("b", app, "1g.10gb", 0, 1, "x")}, map[int]mark{0: uncommon}, 3},
		{"a profile the device has not", []sharing.Held{part("a", app, "1g.5gb", 3, 1, "x")}, map[int]mark{3: uncommon}, 8},
		{"a size the profile has not", []sharing.Held{part("a", app, "1g.10gb", 3, 2, "x")}, map[int]mark{3: uncommon}, 0x18},
		{"a start beyond the last", []sharing.Held{part("a", app, "1g.10gb", 40, 1, "x")}, map[int]mark{15: uncommon}, 1 << 40},
		{"a start before the first", []sharing.Held{part("a", app, "1g.10gb", -1, 1, "x")}, map[int]mark{0: uncommon}, ^uint64(0)},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			v := sharing.NewView(&d, c.held, sharing.Backends{New()})
			got, ok := cutsOf(&v)
			for start := range marks {
				if got.at(start) != c.want[start] {
					t.Errorf("slice %d: %v, want %v", start, got.at(start), c.want[start])
				}
			}
			if !ok || taken(&v) != c.slices {
				t.Errorf("%v, slices %b; want slices %b", ok, taken(&v), c.slices)
			}
		})
	}
}

func TestNothingIsCutBesideWhatHasNoPlace(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	for says, held := range map[string]sharing.Held{
		"a share that is no partition":         {Owner: "a", Share: sharing.Share{Device: d.ID, Mode: sharing.MIG, Memory: sharing.GiB}},
		"a partition whose place is not known": part("a", sharing.App, "", 0, 0, "group1"),
	} {
		v := sharing.NewView(&d, []sharing.Held{part("b", sharing.App, "1g.10gb", 0, 1, "x"), held}, sharing.Backends{New()})
		if _, ok := cutsOf(&v); ok {
			t.Errorf("%s: something may be cut", says)
		}
		first := held.Share
		beside := sharing.NewView(&d, nil, sharing.Backends{New()})
		for _, kind := range []sharing.ContainerKind{sharing.Init, sharing.App} {
			if after := beside.After(kind, &first); must(cutsOf(&after)) {
				t.Errorf("after %s: something may be cut", says)
			}
		}
	}
}

func must(_ cuts, ok bool) bool { return ok }

func TestWhatAPodGotKeepsItsPlaceForItsNextContainers(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	empty := sharing.NewView(&d, nil, sharing.Backends{New()})
	got := part("a", sharing.App, "2g.20gb", 2, 2, "x").Share
	for kind, slices := range map[sharing.ContainerKind]uint64{sharing.App: 0b1100, sharing.Sidecar: 0b1100, sharing.Init: 0b1100} {
		after := empty.After(kind, &got)
		if in, ok := cutsOf(&after); !ok || in.at(2) != 4 || taken(&after) != slices {
			t.Errorf("kind %v: %v, %v, slices %b", kind, in, ok, taken(&after))
		}
	}
	if in, _ := cutsOf(&empty); in != (cuts{}) {
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
