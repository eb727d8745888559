// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math/bits"
	"strings"

	"deviceshare/sharing"
)

// Free is the name of the geometry of devices for which the administrator lists
// none: any partition, wherever the hardware lets it start. No listed geometry
// may have this name.
const Free = "free"

// fitAnywhere meets a request in the n-th best legal place: the smallest profile that
// will do, where it leaves the most room for others.
func (w *wanted) fitAnywhere(v *sharing.View, n int, s *sharing.Share) bool {
	p := v.Device.MIG
	for f := w.nextProfile(v, -1); f >= 0; f = w.nextProfile(v, f) {
		starts := freeStarts(v, f)
		if k := bits.OnesCount64(starts); n >= k {
			n -= k
			continue
		}
		start := chooseStart(v, f, starts, n)
		part := sharing.Partition{
			Profile: p.Profiles[f].Name, Start: start, Size: p.Profiles[f].Size,
			Geometry: Free, Position: freePosition(p, f, start),
		}
		w.writeShare(v.Device, &p.Profiles[f], p.Profiles[f].Memory, part, s)
		return true
	}
	return false
}

// nextProfile is the profile that will do and comes after f in the order of preference;
// -1 past the last. Before the first is -1.
func (w *wanted) nextProfile(v *sharing.View, f int) int {
	p, best := v.Device.MIG, -1
	for g := range p.Profiles {
		if (f < 0 || isPreferredProfile(p, f, g)) && (best < 0 || isPreferredProfile(p, g, best)) &&
			w.mayBeMetBy(&p.Profiles[g], 0) {
			best = g
		}
	}
	return best
}

// isPreferredProfile orders profiles: the smaller first, of equal ones the plain shape
// before its variants, of which fewer may exist.
func isPreferredProfile(p *sharing.Partitioning, f, g int) bool {
	a, b := &p.Profiles[f], &p.Profiles[g]
	switch {
	case isSmallerProfile(a, b) || isSmallerProfile(b, a):
		return isSmallerProfile(a, b)
	case a.Max != b.Max:
		return a.Max == 0 || b.Max != 0 && a.Max > b.Max
	case a.Name != b.Name:
		return a.Name < b.Name
	}
	return f < g
}

// freeStarts returns where a profile may start now, bit i for memory slice i. If as many
// as may exist are in use, only those that an init container of the pod had are left.
func freeStarts(v *sharing.View, f int) uint64 {
	var starts uint64
	p := v.Device.MIG
	full := usedUp(v, &p.Profiles[f])
	for _, start := range p.Profiles[f].Starts {
		span, ok := spanOf(p, &p.Profiles[f], start)
		if ok && isFree(v, f, start, span) && (!full || takenSlices(v)&span != 0) {
			starts |= 1 << start
		}
	}
	return starts
}

// chooseStart returns the n-th best of the starts: the one that keeps most places possible, of
// equal ones the highest.
func chooseStart(v *sharing.View, f int, starts uint64, n int) int {
	p := v.Device.MIG
	for {
		best, most := 0, -1
		for rest := starts; rest != 0; rest &= rest - 1 {
			start := bits.TrailingZeros64(rest)
			span, _ := spanOf(p, &p.Profiles[f], start)
			if k := weighFreePlaces(p, takenSlices(v)|span); k >= most {
				best, most = start, k
			}
		}
		if n == 0 {
			return best
		}
		starts &^= 1 << best
		n--
	}
}

// weighFreePlaces weighs the places that are still possible when these slices are taken:
// each counts as many as the memory slices it covers, so that room for a large
// partition is not given up for a small one. It stands for the metrics that
// count remaining placements, such as the fragmentation gradient of Zambianco et
// al., arXiv 2511.18906.
func weighFreePlaces(p *sharing.Partitioning, taken uint64) int {
	sum := 0
	for f := range p.Profiles {
		for _, start := range p.Profiles[f].Starts {
			if span, ok := spanOf(p, &p.Profiles[f], start); ok && taken&span == 0 {
				sum += bits.OnesCount64(span)
			}
		}
	}
	return sum
}

// usedUp reports whether as many partitions of a profile exist as the hardware allows.
// It is false if that is no fewer than there is room for. The profiles of the partitions
// that the pod itself got so far are not known, so each counts as one of this profile.
func usedUp(v *sharing.View, f *sharing.Profile) bool {
	if f.Max <= 0 || f.Max >= countDisjointStarts(f) {
		return false
	}
	n := ownCount(v)
	held := v.Held()
	for i := range held {
		if sharesBound(held[i].Share.Partition.Profile, f.Name) {
			n++
		}
	}
	return n >= f.Max
}

// sharesBound reports whether partitions of two profiles count together against the bound of
// either: those of one profile, and all that have the media engines, of which a card has one set.
func sharesBound(a, b string) bool {
	return a == b || hasMedia(a) && hasMedia(b)
}

// hasMedia reports whether a profile is one with media engines, such as 1g.6gb+me.
func hasMedia(profile string) bool { return strings.Contains(profile, "+me") }

// countDisjointStarts is how many partitions of a profile fit side by side. Its starts ascend.
func countDisjointStarts(f *sharing.Profile) int {
	n, end := 0, 0
	for _, start := range f.Starts {
		if start >= end {
			n, end = n+1, start+f.Size
		}
	}
	return n
}

// freePosition numbers the legal places of a device: by the name of the profile,
// then by start.
func freePosition(p *sharing.Partitioning, f, start int) int {
	n := 0
	for g := range p.Profiles {
		for _, s := range p.Profiles[g].Starts {
			if isPlaceBefore(p, g, s, f, start) {
				n++
			}
		}
	}
	return n
}

// freeAt is the inverse of freePosition.
func freeAt(p *sharing.Partitioning, position int) (sharing.Partition, bool) {
	for f := range p.Profiles {
		for _, start := range p.Profiles[f].Starts {
			if freePosition(p, f, start) == position {
				_, ok := spanOf(p, &p.Profiles[f], start)
				return sharing.Partition{
					Profile: p.Profiles[f].Name, Start: start, Size: p.Profiles[f].Size,
					Geometry: Free, Position: position,
				}, ok
			}
		}
	}
	return sharing.Partition{}, false
}

func isPlaceBefore(p *sharing.Partitioning, f, start, g, other int) bool {
	if a, b := p.Profiles[f].Name, p.Profiles[g].Name; a != b {
		return a < b
	}
	return f < g || f == g && start < other
}
