// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

// A chessboard is what is on a device: for each memory slice the partition that covers
// it, as NVIDIA's tables draw it. It shares no code with the product.
type chessboard struct {
	rows   [8]string
	exist  map[string]int
	device *sharing.Device
}

// fits reports whether the hardware would cut a partition here.
func (b *chessboard) fits(f *sharing.Profile, start int) bool {
	if !slices.Contains(f.Starts, start) || f.Max > 0 && b.exist[f.Name] == f.Max {
		return false
	}
	for name, n := range b.exist {
		if n > 0 && strings.HasSuffix(name, "+me") && strings.HasSuffix(f.Name, "+me") {
			return false // there is one set of media engines
		}
	}
	for i := range f.Size {
		if b.rows[start+i] != "" {
			return false
		}
	}
	return true
}

// write puts a partition on the board, or with n -1 and no name takes it away.
func (b *chessboard) write(f *sharing.Profile, start int, name string, n int) {
	for i := range f.Size {
		b.rows[start+i] = name
	}
	b.exist[f.Name] += n
}

// legal lists the places for partitions of at least so much memory.
func (b *chessboard) legal(least sharing.Bytes) (all []string) {
	for i := range b.device.MIG.Profiles {
		f := &b.device.MIG.Profiles[i]
		for start := range b.rows {
			if (f.Memory >= least || called(f) >= least) && b.fits(f, start) {
				all = append(all, fmt.Sprintf("%s@%d", f.Name, start))
			}
		}
	}
	slices.Sort(all)
	return all
}

// called is the memory that a profile has by its name.
func called(f *sharing.Profile) sharing.Bytes {
	var compute, gib int64
	if n, _ := fmt.Sscanf(f.Name, "%dg.%dgb", &compute, &gib); n != 2 {
		return 0
	}
	return sharing.MiBs(1024 * gib)
}

// every calls visit for each set of partitions that can exist on the device.
func (b *chessboard) every(from int, held []sharing.Held, visit func([]sharing.Held)) {
	visit(held)
	profiles := b.device.MIG.Profiles
	for place := from; place < len(profiles)*len(b.rows); place++ {
		f, start := &profiles[place/len(b.rows)], place%len(b.rows)
		if !b.fits(f, start) {
			continue
		}
		name := fmt.Sprintf("%s at %d", f.Name, start)
		b.write(f, start, name, 1)
		b.every(place+1, append(slices.Clip(held), inUse(sharing.Owner(name), f.Name, start, f.Size, mig.Free, 0)), visit)
		b.write(f, start, "", -1)
	}
}

// On every state that a device can be in, what is given are the places that the hardware
// has, each once: none overlaps with what is there, and none is forgotten.
func TestTheOptionsAreAllLegalPlacesThatAreFree(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for model, states := range map[string]int{"A30": 66, "A30 with both media profiles": 76, "A100-80": 2319, "H100": 2319} {
		d := sharingtest.Free(sharingtest.Device(0, strings.TrimSuffix(model, " with both media profiles"), sharing.MIG))
		if strings.Contains(model, "media") {
			d = withMedia(d)
		}
		best := sharingtest.BestFit(d)
		board := &chessboard{exist: map[string]int{}, device: &d}
		n := 0
		board.every(0, nil, func(held []sharing.Held) {
			n++
			// Most states are asked for anything, some for more.
			mib := []int64{1, 1, 1, 1, 6000, 12000, 30000, 60000}[r.IntN(8)]
			if f := &d.MIG.Profiles[r.IntN(len(d.MIG.Profiles))]; r.IntN(2) == 0 {
				mib = []int64{int64(f.Memory / sharing.MiB), int64(called(f) / sharing.MiB)}[r.IntN(2)] + r.Int64N(3) - 1
			}
			want := strings.Join(board.legal(sharing.MiBs(mib)), " ")
			for _, device := range []*sharing.Device{&d, &best} {
				v := sharing.NewView(device, held, factory.New())
				got, _ := options(t, &v, sharingtest.Ask("main", mib, 0))
				slices.Sort(got)
				if given := strings.Join(got, " "); given != want {
					t.Fatalf("%s, %v, %d MiB beside %v:\ngot  %s\nwant %s", model, device.MIG.Policy, mib, board.rows, given, want)
				}
			}
		})
		if n != states {
			t.Errorf("%s has %d states, want %d", model, n, states)
		}
	}
}

// withMedia adds the media profile of two slices that newer drivers have on an A30.
func withMedia(d sharing.Device) sharing.Device {
	p := *d.MIG
	p.Profiles = append(slices.Clone(p.Profiles), sharing.Profile{
		Name: "2g.12gb+me", Memory: sharing.MiBs(11672), Compute: 2, Size: 2, Starts: []int{0, 2}, Max: 1,
	})
	d.MIG = &p
	return d
}

// The A30 has one set of media engines, so a partition of one slice that has them and one of two
// do not exist together.
func TestOnePartitionHasTheMediaEngines(t *testing.T) {
	d := withMedia(sharingtest.Device(0, "A30", sharing.MIG))
	both := listing(d, of("both", times(1, "1g.6gb+me"), times(1, "2g.12gb+me")), of("one", times(2, "1g.6gb"), times(1, "2g.12gb+me")))
	if p, ok := mig.At(both.MIG, "both", 0); ok {
		t.Errorf("a card can be cut into both: %+v", p)
	}
	if _, ok := mig.At(both.MIG, "one", 2); !ok {
		t.Error("a card cannot be cut so that one of its partitions has the media engines")
	}
	free := sharingtest.Free(d)
	v := sharing.NewView(&free, []sharing.Held{inUse("a", "1g.6gb+me", 0, 1, mig.Free, 0)}, factory.New())
	if got, _ := options(t, &v, sharingtest.Ask("main", 12000, 0)); strings.Join(got, " ") != "2g.12gb@2" {
		t.Errorf("beside a 1g.6gb+me there are %v", got)
	}
}
