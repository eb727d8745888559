// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math/bits"

	"deviceshare/sharing"
)

// fitGeometry meets a request from a geometry: the smallest partition that will do and
// is free. Of equal ones it is the one that keeps most of the other geometries
// open, the first such by position.
func (w *wanted) fitGeometry(v *sharing.View, g int, s *sharing.Share) bool {
	p := v.Device.MIG
	l, ok := laidOut(v, g)
	if !ok || !w.mayFitGeometry(p, &p.Geometries[g]) || !l.coversInUse(v) {
		return false
	}
	best, equal := w.findSmallestFree(v, l, p.Geometries[g].Name)
	if best < 0 {
		return false
	}
	if equal&(equal-1) != 0 && len(p.Geometries) > 1 {
		best = l.roomiestPosition(v, g, equal)
	}
	w.writeShare(v.Device, &p.Profiles[l.at[best].profile], l.at[best].memory, l.at[best].asPartition(p, &p.Geometries[g], best), s)
	return true
}

// findSmallestFree is the position of the smallest free partition that will do, -1 if
// there is none, and the positions that are as good, bit i for position i.
func (w *wanted) findSmallestFree(v *sharing.View, l *layout, name string) (best int, equal uint64) {
	p := v.Device.MIG
	best = -1
	for i := range l.at {
		at := &l.at[i]
		f := &p.Profiles[at.profile]
		span, _ := spanOf(p, f, int(at.start))
		if !isFree(v, int(at.profile), int(at.start), span) || !w.isMetBy(f, at.nominal) || isNameHeld(v, name, i) {
			continue
		}
		switch {
		case best < 0 || at.memory < l.at[best].memory ||
			at.memory == l.at[best].memory && isSmallerProfile(f, &p.Profiles[l.at[best].profile]):
			best, equal = i, 1<<i
		case at.memory == l.at[best].memory && at.profile == l.at[best].profile:
			equal |= 1 << i
		}
	}
	return best, equal
}

// coversInUse reports whether every partition in use has its place in the layout. Then the
// device can have this geometry while they run, even if they were named after another.
func (l *layout) coversInUse(v *sharing.View) bool {
	left, ok := sliceMarksOf(v)
	if !ok {
		return false
	}
	for i := 0; i < len(l.at) && left != (sliceMarks{}); i++ {
		start := int(l.at[i].start)
		if start >= marks {
			continue
		}
		if m := left.markAt(start); m != conflictMark && m == markOf(int(l.at[i].profile)) {
			left.setMark(start, 0)
		}
	}
	return left == sliceMarks{}
}

// roomiestPosition chooses among equal positions of geometry g: first the one with which
// most of the other geometries stay possible, then the one that leaves most room
// for larger partitions, then the lowest.
func (l *layout) roomiestPosition(v *sharing.View, g int, equal uint64) int {
	p := v.Device.MIG
	f := l.at[bits.TrailingZeros64(equal)].profile
	var open [maxInstances]uint8
	for h := range p.Geometries {
		if h != g && hasProfile(&p.Geometries[h], p.Profiles[f].Name) {
			l.countOpenPositions(v, h, equal, &open)
		}
	}
	best, room := -1, 0
	for rest := equal; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		span, _ := spanOf(p, &p.Profiles[f], int(l.at[i].start))
		left := weighFreeBlocks(takenSlices(v)|span, p.Slices)
		if best < 0 || open[i] > open[best] || open[i] == open[best] && left > room {
			best, room = i, left
		}
	}
	return best
}

// countOpenPositions adds one for each of the equal positions with which another geometry stays
// possible.
func (l *layout) countOpenPositions(v *sharing.View, other int, equal uint64, open *[maxInstances]uint8) {
	o, ok := laidOut(v, other)
	if !ok || !o.coversInUse(v) {
		return
	}
	for rest := equal; rest != 0; rest &= rest - 1 {
		if i := bits.TrailingZeros64(rest); o.hasInstance(l.at[i].profile, l.at[i].start) {
			open[i]++
		}
	}
}

// hasInstance reports whether the layout has a partition of this profile at this start.
func (l *layout) hasInstance(f, start int32) bool {
	for i := range l.at {
		if l.at[i].start == start && l.at[i].profile == f {
			return true
		}
	}
	return false
}

// weighFreeBlocks counts the free blocks of 2, 4, 8 and so on memory slices, each weighing
// as many as its slices. Such blocks begin at a multiple of their size, as larger
// partitions do on every device.
func weighFreeBlocks(taken uint64, slices int) int {
	multiples := [...]uint64{0x5555555555555555, 0x1111111111111111, 0x0101010101010101, 0x0001000100010001, 0x0000000100000001, 1}
	free, sum := ^taken&(1<<slices-1), 0
	for i, size := 0, 1; 2*size <= slices; i, size = i+1, 2*size {
		free &= free >> size & multiples[i]
		sum += 2 * size * bits.OnesCount64(free)
	}
	return sum
}

func hasProfile(g *sharing.Geometry, profile string) bool {
	for i := range g.Entries {
		if g.Entries[i].Profile == profile {
			return true
		}
	}
	return false
}

// mayFitGeometry reports whether any partition of the geometry is large enough: most
// geometries can be skipped without laying them out.
func (w *wanted) mayFitGeometry(p *sharing.Partitioning, g *sharing.Geometry) bool {
	for _, e := range g.Entries {
		if f := findProfile(p, e.Profile); f >= 0 && w.mayBeMetBy(&p.Profiles[f], e.Memory) {
			return true
		}
	}
	return false
}

// isNameHeld reports whether somebody holds a partition of this name. Places do not tell if the
// geometry was changed under its old name while partitions of it are in use, and
// two pods must not have one name.
func isNameHeld(v *sharing.View, geometry string, position int) bool {
	held := v.Held()
	for i := range held {
		if q := &held[i].Share.Partition; !q.IsZero() && q.Geometry == geometry && q.Position == position {
			return true
		}
	}
	return false
}
