// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

// options lists the ways to meet a request, as "1g.10gb@6 loss", in their order.
func options(t *testing.T, v *sharing.View, req sharing.Request) (places []string, losses []int64) {
	t.Helper()
	chooser := mig.New().(sharing.Chooser)
	for n := range 1000 {
		s, cost, ok := chooser.Option(v, &req, n)
		if !ok {
			return places, losses
		}
		places = append(places, fmt.Sprintf("%s@%d", s.Partition.Profile, s.Partition.Start))
		losses = append(losses, cost.Loss)
	}
	t.Fatal("there is no end of options")
	return nil, nil
}

// cut is a device of partitions made up for a test, without geometries.
func cut(slices int, profiles ...sharing.Profile) sharing.Device {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	d.MIG = &sharing.Partitioning{Slices: slices, Profiles: profiles}
	return d
}

func starts(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestTheOrderOfOptions(t *testing.T) {
	const gib = sharing.GiB
	one := []int{0}
	odd := cut(4,
		sharing.Profile{Name: "more memory", Memory: 2 * gib, Compute: 1, Size: 1, Starts: one},
		sharing.Profile{Name: "b, two may exist", Memory: gib, Compute: 1, Size: 1, Starts: one, Max: 2},
		sharing.Profile{Name: "more slices", Memory: gib, Compute: 1, Size: 2, Starts: one, Max: 3},
		sharing.Profile{Name: "a, two may exist", Memory: gib, Compute: 1, Size: 1, Starts: one, Max: 2},
		sharing.Profile{Name: "four may exist", Memory: gib, Compute: 1, Size: 1, Starts: one, Max: 4},
		sharing.Profile{Name: "more compute", Memory: gib, Compute: 2, Size: 1, Starts: one},
		sharing.Profile{Name: "any number may exist", Memory: gib, Compute: 1, Size: 1, Starts: one},
	)
	a30 := sharingtest.Free(sharingtest.Device(0, "A30", sharing.MIG))
	shipped := sharingtest.Device(0, "A100-80", sharing.MIG)
	for says, c := range map[string]struct {
		d      sharing.Device
		mib    int64
		want   string
		losses string // "" does not matter
	}{
		"smaller profiles first, then those of which more may exist": {
			odd, 1, "any number may exist@0, four may exist@0, a, two may exist@0, b, two may exist@0, more slices@0, more compute@0, more memory@0", "",
		},
		"of starts that keep as much possible the highest first": {
			a30, 5000, "1g.6gb@3, 1g.6gb@2, 1g.6gb@1, 1g.6gb@0, 1g.6gb+me@3, 1g.6gb+me@2, 1g.6gb+me@1, 1g.6gb+me@0, 2g.12gb@2, 2g.12gb@0, 4g.24gb@0",
			"[0 0 0 0 0 0 0 0 1000 1000 3000]",
		},
		"the first geometry first, and a larger partition loses what it is too large": {
			shipped, 5000, "1g.10gb@6, 1g.10gb@6, 3g.40gb@0, 7g.80gb@0", "[0 0 3000 7000]",
		},
		"best fit: fewer slices, less lost, plainer, lower": {
			sharingtest.BestFit(a30), 5000,
			"1g.6gb@0, 1g.6gb@1, 1g.6gb@2, 1g.6gb@3, 1g.6gb+me@0, 1g.6gb+me@1, 1g.6gb+me@2, 1g.6gb+me@3, 2g.12gb@0, 2g.12gb@2, 4g.24gb@0", "",
		},
		// Of 30 slices of places in four groups, 1g@6 leaves 6 and 6, the others leave 6.
		"best fit of geometries: a place is there once, and what is lost is of the groups without it": {
			sharingtest.BestFit(shipped), 5000,
			"1g.10gb@6, 1g.10gb@0, 1g.10gb@1, 1g.10gb@2, 1g.10gb@3, 1g.10gb@4, 1g.10gb@5, 2g.20gb@0, 2g.20gb@2, 2g.20gb@4, 3g.40gb@0, 3g.40gb@4, 7g.80gb@0", "",
		},
	} {
		v := sharing.NewView(&c.d, nil, factory.New())
		got, losses := options(t, &v, sharingtest.Ask("main", c.mib, 0))
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", says, strings.Join(got, ", "), c.want)
		}
		if c.losses != "" && fmt.Sprint(losses) != c.losses {
			t.Errorf("%s: they lose %v, want %s", says, losses, c.losses)
		}
	}
}

func TestWhatIsLostIsOfTheGroupsThatHaveThePlace(t *testing.T) {
	d := sharingtest.BestFit(sharingtest.Device(0, "A100-80", sharing.MIG))
	v := sharing.NewView(&d, nil, factory.New())
	_, losses := options(t, &v, sharingtest.Ask("main", 5000, 0))
	// The four groups have places of 7, 7, 8 and 8 slices. With 1g@6 there are 6 left in
	// each of the first two; with another 1g there are 6 left in the first.
	const full = 50 * 1 * (2*8 - 1)
	if six, zero := int64(8000*(30-12)/30+full), int64(8000*(30-6)/30+full); losses[0] != six || losses[1] != zero {
		t.Errorf("1g@6 loses %d, 1g@0 loses %d; want %d and %d", losses[0], losses[1], six, zero)
	}
}

func TestOptionsOfMadeUpDevices(t *testing.T) {
	const gib = sharing.GiB
	held := func(profile string, size int, starts ...int) (all []sharing.Held) {
		for _, start := range starts {
			all = append(all, inUse(sharing.Owner(fmt.Sprint(start)), profile, start, size, mig.Free, 0))
		}
		return all
	}
	two := cut(8, sharing.Profile{Name: "two", Memory: gib, Compute: 1, Size: 2, Starts: []int{0, 2, 4, 6}, Max: 2})
	for says, c := range map[string]struct {
		d    sharing.Device
		held []sharing.Held
		want string
	}{
		"two of a profile that may exist twice are in use": {two, held("two", 2, 0, 4), ""},
		"one of them is":                                   {two, held("two", 2, 4), "two@0, two@2, two@6"},
		"a profile without memory slices":                  {cut(4, sharing.Profile{Name: "none", Memory: gib, Compute: 1, Starts: []int{0}}), nil, ""},
		"starts from which it would not end on the device": {cut(4, sharing.Profile{Name: "two", Memory: gib, Compute: 1, Size: 2, Starts: []int{0, 2, 3, 5}}), nil, "two@0, two@2"},
		"a profile larger than the device":                 {cut(4, sharing.Profile{Name: "five", Memory: gib, Compute: 1, Size: 5, Starts: []int{0}}), nil, ""},
	} {
		for _, d := range []sharing.Device{c.d, sharingtest.BestFit(c.d)} {
			v := sharing.NewView(&d, c.held, factory.New())
			got, _ := options(t, &v, sharingtest.Ask("main", 1, 0))
			slices.Sort(got)
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%s, %v: %v, want %s", says, d.MIG.Policy, got, c.want)
			}
		}
	}
}

// No device has more than 8 memory slices; more than we keep marks of are only divided
// among pods, not between the containers of one.
func TestDevicesOfMoreSlicesThanThereAreMarksFor(t *testing.T) {
	one := sharing.Profile{Name: "one", Memory: sharing.GiB, Compute: 1, Size: 1, Starts: starts(64)}
	other := one
	other.Name = "other"
	d := cut(64, one, other)
	ask := sharingtest.Ask("main", 1, 0)
	v := sharing.NewView(&d, nil, factory.New())
	for _, start := range []int{15, 16} {
		s := sharing.Share{Device: d.ID, Mode: sharing.MIG, Memory: sharing.GiB, Partition: sharing.Partition{Profile: "one", Start: start, Size: 1, Geometry: mig.Free}}
		after := v.After(sharing.Init, &s)
		got, _ := options(t, &after, ask)
		if again := slices.Contains(got, fmt.Sprint("one@", start)); again != (start < 16) {
			t.Errorf("the partition of an init container at slice %d may be used again: %v", start, again)
		}
	}
	best := sharingtest.BestFit(d)
	v = sharing.NewView(&best, nil, factory.New())
	if got, _ := options(t, &v, ask); len(got) != 64 {
		t.Errorf("of 128 places %d are weighed", len(got))
	}
	listed := listing(d, of("all", times(64, "one")))
	stranger := sharing.NewView(&listed, []sharing.Held{inUse("a", "nobody's", 0, 1, "former", 0)}, factory.New())
	if got, _ := options(t, &stranger, ask); len(got) != 0 {
		t.Errorf("beside a partition that no geometry has there is %v", got)
	}
}

func TestWhatTheMemoryOfAPartitionIs(t *testing.T) {
	a30 := sharingtest.Device(0, "A30", sharing.MIG)
	unknown := listing(a30, of("g", sharing.GeometryEntry{Profile: "1g.6gb", Memory: 5 * sharing.GiB, Count: 4}))
	unknown.MIG.Profiles = slices.Clone(unknown.MIG.Profiles)
	unknown.MIG.Profiles[0].Memory = 0
	for says, c := range map[string]struct {
		d    sharing.Device
		want sharing.Bytes
	}{
		"that of the hardware, where the administrator wrote more": {a30, sharing.MiBs(5836)},
		"that of the hardware, where the administrator wrote less": {listing(a30, of("g", sharing.GeometryEntry{Profile: "1g.6gb", Memory: 5 * sharing.GiB, Count: 4})), sharing.MiBs(5836)},
	} {
		v := sharing.NewView(&c.d, nil, factory.New())
		req := sharingtest.Ask("main", 5000, 0)
		if s, reason := sharingtest.Fit(mig.New(), &v, &req); reason != sharing.Fits || s.Memory != c.want {
			t.Errorf("%s: %v, %v, want %v", says, s.Memory, reason, c.want)
		}
	}
	v := sharing.NewView(&unknown, nil, factory.New())
	req := sharing.Request{Container: "main", Count: 1, Memory: sharing.PercentMemory(25)}
	if s, reason := sharingtest.Fit(mig.New(), &v, &req); reason != sharing.Fits || s.Memory != 5*sharing.GiB {
		t.Errorf("what the administrator wrote, where the hardware says nothing: %v, %v", s.Memory, reason)
	}
}
