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

// free is a partition somebody has wherever it may start.
func free(profile string, start, size int) sharing.Held {
	return inUse(sharing.Owner(fmt.Sprint(profile, start)), profile, start, size, "", 0)
}

func TestBestFitTakesThePlaceThatLeavesMost(t *testing.T) {
	a100 := sharingtest.BestFit(sharingtest.Free(sharingtest.Device(0, "A100-80", sharing.MIG)))
	a30 := sharingtest.BestFit(sharingtest.Free(sharingtest.Device(0, "A30", sharing.MIG)))
	shipped := sharingtest.BestFit(sharingtest.Device(0, "A100-80", sharing.MIG))
	one, four := free("1g.10gb", 0, 1), free("3g.40gb", 4, 4)
	cases := []struct {
		says string
		d    sharing.Device
		held []sharing.Held
		mib  int64
		want string
	}{
		{"a small one beside a small one", a100, []sharing.Held{one}, 5000, "1g.10gb@1 free-1"},
		{"and not into the other half, whole as it is", a100, []sharing.Held{free("1g.10gb", 5, 1)}, 5000, "1g.10gb@6 free-6"},
		{"a pair beside the small ones", a100, []sharing.Held{one, free("1g.10gb", 1, 1)}, 15000, "1g.20gb@2 free-15"},
		{"memory without compute where no compute is left", a100, []sharing.Held{free("2g.20gb", 4, 2)}, 15000, "1g.20gb@6 free-17"},
		{"the half beside a half", a100, []sharing.Held{four}, 30000, "3g.40gb@0 free-21"},
		{"all of it", a100, nil, 80000, "7g.80gb@0 free-24"},
		{"the smallest that will do comes before the best place", a100, []sharing.Held{free("3g.40gb", 0, 4)}, 5000, "1g.10gb@6 free-6"},
		{"on an A30, a small one beside a small one", a30, []sharing.Held{free("1g.6gb", 3, 1)}, 5000, "1g.6gb@2 free-2"},
		{"on an A30, a pair", a30, []sharing.Held{free("1g.6gb", 3, 1)}, 11000, "2g.12gb@0 free-8"},
		{"any listed group, not the first", shipped, []sharing.Held{free("2g.20gb", 0, 2)}, 5000, "1g.10gb@6 group2-3"},
		{"of two groups with the place, the name in the first", shipped, nil, 5000, "1g.10gb@6 group1-6"},
		{"nothing outside the groups", shipped, []sharing.Held{one}, 15000, "NoPartitionFits"},
		{"the group that has the right size", shipped, nil, 15000, "2g.20gb@0 group2-0"},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			if got := given(t, &c.d, c.mib, c.held...); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// loss is what Fit says later requests lose.
func loss(t *testing.T, d *sharing.Device, mib int64, held ...sharing.Held) int64 {
	t.Helper()
	v := sharing.NewView(d, held, factory.New())
	req := sharingtest.Ask("main", mib, 0)
	c, reason := mig.New().Fit(&v, &req)
	if reason != sharing.Fits {
		t.Fatalf("%d MiB beside %v: %v", mib, held, reason)
	}
	return c.Loss
}

// Each pair says of which of two devices a request takes less.
func TestBestFitKnowsWhichDeviceLosesLess(t *testing.T) {
	a100 := sharingtest.BestFit(sharingtest.Free(sharingtest.Device(0, "A100-80", sharing.MIG)))
	shipped := sharingtest.BestFit(sharingtest.Device(0, "A100-80", sharing.MIG))
	made := a100
	p := *a100.MIG
	p.Slices = 7
	p.Profiles = p.Profiles[:6]
	made.MIG = &p
	one, half := free("1g.10gb", 6, 1), free("3g.40gb", 4, 4)
	cases := []struct {
		says         string
		d            sharing.Device
		mib          int64
		better, than []sharing.Held
	}{
		{"an empty device is spared for a 7g", a100, 5000, []sharing.Held{half}, nil},
		{"a broken half before a whole one", a100, 5000, []sharing.Held{free("1g.10gb", 0, 1), half}, []sharing.Held{half}},
		{"a 3g goes where only one half is left", a100, 30000, []sharing.Held{half}, nil},
		{"groups: an empty device is spared", shipped, 5000, []sharing.Held{free("1g.10gb", 0, 1)}, nil},
		{"groups: the fuller of two that keep as much", shipped, 5000, []sharing.Held{free("1g.10gb", 0, 1), free("1g.10gb", 1, 1)}, []sharing.Held{free("1g.10gb", 0, 1)}},
		{"groups: the right size before a larger one", shipped, 5000, nil, []sharing.Held{free("2g.20gb", 0, 2), free("1g.10gb", 6, 1), free("2g.20gb", 2, 2)}},
		{"a device nobody has a table for: the fuller", made, 5000, []sharing.Held{free("1g.10gb", 0, 1), free("1g.10gb", 1, 1)}, []sharing.Held{one}},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			if a, b := loss(t, &c.d, c.mib, c.better...), loss(t, &c.d, c.mib, c.than...); a >= b {
				t.Errorf("%d beside %v, %d beside %v", a, c.better, b, c.than)
			}
		})
	}
}

// What is on a device and cannot be told apart still counts as in use.
func TestBestFitWorksBesidePartitionsItDoesNotKnow(t *testing.T) {
	d := sharingtest.BestFit(sharingtest.Free(sharingtest.Device(0, "A100-80", sharing.MIG)))
	for says, held := range map[string]sharing.Held{
		"a profile of another device": inUse("a", "9g.99gb", 0, 4, "former", 0),
		"a start of its own":          inUse("a", "2g.20gb", 1, 2, "former", 0),
	} {
		if got := given(t, &d, 30000, held); got != "3g.40gb@4 free-22" {
			t.Errorf("%s: %s", says, got)
		}
	}
}

// More groups than are weighed can still be used.
func TestBestFitOfALongList(t *testing.T) {
	many := sharingtest.BestFit(sharingtest.Device(0, "A100-80", sharing.MIG))
	var groups []sharing.Geometry
	for i := range 40 {
		groups = append(groups, of(fmt.Sprint("g", i), times(7, "1g.10gb")))
	}
	many = listing(many, groups...)
	if got := given(t, &many, 5000); got != "1g.10gb@0 g0-0" {
		t.Errorf("of forty groups: %s", got)
	}
}

func TestMoreCannotBeLostThanThereIs(t *testing.T) {
	for _, model := range []string{"A30", "A100-80", "H200"} {
		for _, d := range []sharing.Device{sharingtest.Device(0, model, sharing.MIG), sharingtest.Free(sharingtest.Device(0, model, sharing.MIG))} {
			d = sharingtest.BestFit(d)
			v := sharing.NewView(&d, nil, factory.New())
			for _, mib := range []int64{1000, 15000, 30000, 0} {
				req := sharingtest.Ask("main", mib, 0)
				c, reason := mig.New().Fit(&v, &req)
				if reason == sharing.Fits && (c.Loss <= 0 || c.Loss > 2000*int64(d.MIG.Slices)) {
					t.Errorf("%s, %d MiB: %d", model, mib, c.Loss)
				}
			}
		}
	}
}
