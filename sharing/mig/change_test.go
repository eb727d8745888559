// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

// listing gives a device the geometries of these texts: "a=2x1g.10gb+1x2g.20gb".
func listing(d sharing.Device, geometries ...sharing.Geometry) sharing.Device {
	p := *d.MIG
	p.Geometries = geometries
	d.MIG = &p
	return d
}

func of(name string, entries ...sharing.GeometryEntry) sharing.Geometry {
	return sharing.Geometry{Name: name, Entries: entries}
}

func times(count int, profile string) sharing.GeometryEntry {
	return sharing.GeometryEntry{Profile: profile, Count: count}
}

// inUse is a partition that was named under some geometry, now or in the past.
func inUse(owner sharing.Owner, profile string, start, size int, geometry string, position int) sharing.Held {
	return sharing.Held{Owner: owner, Container: "main", Share: sharing.Share{Device: "GPU-0", Mode: sharing.MIG, Memory: sharing.GiB,
		Partition: sharing.Partition{Profile: profile, Start: start, Size: size, Geometry: geometry, Position: position}}}
}

func given(t *testing.T, d *sharing.Device, mib int64, held ...sharing.Held) string {
	t.Helper()
	v := sharing.NewView(d, held, factory.New())
	req := sharingtest.Ask("main", mib, 0)
	share, reason := sharingtest.Fit(mig.New(), &v, &req)
	if reason != sharing.Fits {
		return reason.String()
	}
	p := share.Partition
	if got, ok := mig.At(d.MIG, p.Geometry, p.Position); !ok || got != p {
		t.Errorf("the name of %+v leads to %+v", p, got)
	}
	return fmt.Sprintf("%s@%d %s-%d", p.Profile, p.Start, p.Geometry, p.Position)
}

// A device may go to another geometry while containers run on it, if each of
// their partitions has the same place there.
func TestADeviceChangesItsGeometryAroundWhatIsInUse(t *testing.T) {
	shipped := sharingtest.Device(0, "A100-80", sharing.MIG)
	no := sharing.NoPartitionFits.String()
	const media = "1g.10gb+me"
	cases := []struct {
		says string
		d    sharing.Device
		held []sharing.Held
		mib  int64
		want string
	}{
		{"a 1g at the end belongs to two groups", shipped, []sharing.Held{inUse("a", "1g.10gb", 6, 1, "group1", 6)}, 15000, "2g.20gb@4 group2-2"},
		{"a 1g elsewhere belongs to one", shipped, []sharing.Held{inUse("a", "1g.10gb", 0, 1, "group1", 0)}, 15000, no},
		{"and back when the 2g is gone", shipped, []sharing.Held{inUse("a", "1g.10gb", 6, 1, "group2", 3)}, 1000, "1g.10gb@4 group1-4"},
		{"two pods named after two groups", shipped, []sharing.Held{inUse("a", "1g.10gb", 6, 1, "group1", 6), inUse("b", "2g.20gb", 0, 2, "group2", 0)}, 15000, "2g.20gb@2 group2-1"},
		{"one of them in the way", shipped, []sharing.Held{inUse("a", "1g.10gb", 5, 1, "group1", 5), inUse("b", "1g.10gb", 6, 1, "group1", 6)}, 15000, no},
		{"the same span as another profile is not the same partition",
			listing(shipped, of("a", times(3, "2g.20gb"))), []sharing.Held{inUse("a", "1g.20gb", 0, 2, "former", 0)}, 15000, no},
		{"nor is one with media engines",
			listing(shipped, of("a", times(7, "1g.10gb"))), []sharing.Held{inUse("a", media, 0, 1, "former", 0)}, 1000, no},
		{"a group taken out of the list, whose places others have", listing(shipped, of("now", times(2, "3g.40gb"))),
			[]sharing.Held{inUse("a", "3g.40gb", 4, 4, "former", 1)}, 30000, "3g.40gb@0 now-0"},
		{"a list taken away altogether", sharingtest.Free(shipped), []sharing.Held{inUse("a", "3g.40gb", 4, 4, "group3", 1)}, 30000, "3g.40gb@0 free-21"},
		{"a list where there was none", shipped, []sharing.Held{inUse("a", "3g.40gb", 4, 4, "free", 22)}, 30000, "3g.40gb@0 group3-0"},
		{"a partition that has no name", shipped, []sharing.Held{inUse("a", "3g.40gb", 4, 4, "", 0)}, 30000, "3g.40gb@0 group3-0"},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			if got := given(t, &c.d, c.mib, c.held...); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Among equal positions the one is taken that the other groups have too.
func TestOfEqualPositionsTheOneIsTakenThatKeepsMostOpen(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	lone := times(1, "1g.10gb")
	cases := []struct {
		says string
		d    sharing.Device
		held []sharing.Held
		want string
	}{
		{"the one another group has", d, nil, "1g.10gb@6 group1-6"},
		{"the one two others have", listing(d, of("ones", times(7, "1g.10gb")), of("a", times(1, "4g.40gb"), times(1, "2g.20gb"), lone),
			of("b", times(1, "3g.40gb"), times(1, "2g.20gb"), lone), of("c", lone, times(3, "2g.20gb"))), nil, "1g.10gb@6 ones-6"},
		{"without others the lowest", listing(d, of("ones", times(7, "1g.10gb"))), nil, "1g.10gb@0 ones-0"},
		{"if the others are out of reach, the one beside which larger ones have room",
			d, []sharing.Held{inUse("a", "1g.10gb", 3, 1, "group1", 3)}, "1g.10gb@2 group1-2"},
		{"the one another group has that has only such, although larger ones had room beside the next",
			listing(d, of("seven", times(7, "1g.10gb")), of("five", times(5, "1g.10gb"))), []sharing.Held{inUse("a", "1g.10gb", 4, 1, "seven", 4)}, "1g.10gb@0 seven-0"},
		{"the one the most others have, of those that have only such", listing(d, of("mixed", times(1, "3g.40gb"), times(3, "1g.10gb")),
			of("five", times(5, "1g.10gb")), of("six", times(6, "1g.10gb"))), nil, "1g.10gb@4 mixed-1"},
		{"another group that cannot be laid out counts for nothing", listing(d, of("ones", times(7, "1g.10gb")), of("wrong", lone, times(1, "7g.80gb"))), nil, "1g.10gb@0 ones-0"},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			if got := given(t, &c.d, 1000, c.held...); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The administrator changed group2 while its number 0 was in use: the number
// belongs to the pod that has it, wherever it lies.
func TestANameInUseIsNotGivenAgainAfterItsGeometryChanged(t *testing.T) {
	d := listing(sharingtest.Device(0, "A100-80", sharing.MIG), of("group2", times(3, "2g.20gb"), times(1, "1g.10gb")))
	got := given(t, &d, 15000, inUse("a", "1g.10gb", 6, 1, "group2", 0))
	if got != "2g.20gb@2 group2-1" {
		t.Errorf("got %s, want position 1", got)
	}
}

// The partition of an init container must be possible beside those of the pod's
// other containers, since it may run again.
func TestTheGeometryOfAnInitContainerHoldsForItsPod(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	v := sharing.NewView(&d, nil, factory.New())
	half, small := sharingtest.Ask("init", 30000, 0), sharingtest.Ask("main", 1000, 0)
	first, _ := sharingtest.Fit(mig.New(), &v, &half)
	later := v.After(sharing.Init, &first)
	share, reason := sharingtest.Fit(mig.New(), &later, &small)
	if reason != sharing.Fits || share.Partition.Geometry != first.Partition.Geometry {
		t.Errorf("after %+v: %+v, %v", first.Partition, share.Partition, reason)
	}
	beside := v.After(sharing.App, &first)
	share, reason = sharingtest.Fit(mig.New(), &beside, &half)
	if reason != sharing.Fits || share.Partition.Start == first.Partition.Start {
		t.Errorf("beside %+v: %+v, %v", first.Partition, share.Partition, reason)
	}
}
