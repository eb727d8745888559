// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

// A card is one of any size that a driver could describe, in plain numbers.
type card struct {
	size, real, gib []int64   // of each profile: memory slices, MiB that it has, GiB in its name
	groups          [][]int   // the profiles in each group, one partition each
	listed          [][]int64 // MiB that the administrator wrote for it
}

// randomCard invents a card as NVIDIA names profiles: eighths of the memory, rounded to GiB, of
// which the hardware keeps up to an eighth. The administrator writes anything.
func randomCard(r *rand.Rand) (card, sharing.Device) {
	total := 16*1024 + r.Int64N(300*1024)
	d := sharing.Device{ID: "GPU-0", Model: "NVIDIA X", Memory: sharing.MiBs(total), Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.MIG}
	p := &sharing.Partitioning{Slices: 8, Policy: sharing.PartitionPolicy(r.IntN(2))}
	var c card
	for i, shape := range []struct{ compute, size int }{{1, 1}, {2, 2}, {3, 4}, {7, 8}} {
		gib := (2*((total+1023)/1024)*int64(shape.size) + 8) / 16
		has := total * int64(shape.size) / 8
		has -= r.Int64N(has/8 + 1)
		c.size, c.gib, c.real = append(c.size, int64(shape.size)), append(c.gib, gib), append(c.real, has)
		p.Profiles = append(p.Profiles, sharing.Profile{
			Name: fmt.Sprintf("%dg.%dgb", shape.compute, gib), Memory: sharing.MiBs(has), Compute: shape.compute, Size: shape.size,
			Starts: [][]int{{0, 1, 2, 3, 4, 5, 6}, {0, 2, 4}, {0, 4}, {0}}[i],
		})
	}
	for g := range r.IntN(5) {
		group := sharing.Geometry{Name: fmt.Sprint("g", g)}
		profiles := [][]int{{0}, {1, 0}, {2, 1}, {3}}[r.IntN(4)]
		var listed []int64
		for _, f := range profiles {
			mib := max(1, []int64{c.real[f], 1024 * c.gib[f], 1024*c.gib[f] + r.Int64N(3000) - 1500, 1 + r.Int64N(400*1024)}[r.IntN(4)])
			listed = append(listed, mib)
			group.Entries = append(group.Entries, sharing.GeometryEntry{Profile: p.Profiles[f].Name, Memory: sharing.MiBs(mib), Count: 1})
		}
		c.groups, c.listed, p.Geometries = append(c.groups, profiles), append(c.listed, listed), append(p.Geometries, group)
	}
	d.MIG = p
	return c, d
}

// serves says whether a request for so many MiB may be met by profile f that is listed with so
// many.
func (c *card) serves(f int, listed, asked int64) bool {
	most := 1024 * c.gib[f]
	return asked <= c.real[f] || asked <= most || asked <= listed && listed < most+1024
}

// slices says how many memory slices a request may get of the empty card: the fewest, where any
// group may be taken, else the fewest of the first group that has any. 0 is none.
func (c *card) slices(asked int64, anyGroup bool) (best int64) {
	if len(c.groups) == 0 {
		for f := range c.size {
			if c.serves(f, 0, asked) && (best == 0 || c.size[f] < best) {
				best = c.size[f]
			}
		}
		return best
	}
	for g, profiles := range c.groups {
		for i, f := range profiles {
			if c.serves(f, c.listed[g][i], asked) && (best == 0 || c.size[f] < best) {
				best = c.size[f]
			}
		}
		if best > 0 && !anyGroup {
			break
		}
	}
	return best
}

// Whatever a driver reports and an administrator writes: who asks for what a profile is called
// gets that profile, and who asks for a MiB more does not. What is given is what the hardware has.
func TestAPartitionServesWhatPeopleCallIt(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 54))
	refused := 0
	for range 20000 {
		c, d := randomCard(r)
		f := r.IntN(len(c.size))
		asked := []int64{c.real[f], 1024 * c.gib[f], 1024*c.gib[f] + 1023, 1 + r.Int64N(1024*c.gib[3]+2000)}[r.IntN(4)]
		if n := r.IntN(len(c.groups) + 1); n < len(c.groups) {
			asked = c.listed[n][0]
		}
		asked = max(1, asked+r.Int64N(3)-1)
		v := sharing.NewView(&d, nil, factory.New())
		req := sharingtest.Ask("main", asked, 0)
		s, reason := sharingtest.Fit(mig.New(), &v, &req)
		want := c.slices(asked, d.MIG.Policy == sharing.BestFit)
		if got := int64(s.Partition.Size); got != want || (reason == sharing.Fits) != (want > 0) {
			t.Fatalf("%d MiB of %+v, %v: %v, %d slices, want %d", asked, c, d.MIG.Policy, reason, got, want)
		}
		if want == 0 {
			refused++
			continue
		}
		for f := range c.size {
			if c.size[f] == want && s.Memory != sharing.MiBs(c.real[f]) {
				t.Fatalf("%d MiB of %+v: the partition is said to have %v", asked, c, s.Memory)
			}
		}
	}
	if refused < 1000 {
		t.Errorf("only %d requests were refused: this shows little", refused)
	}
}
