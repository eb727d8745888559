// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math/bits"

	"deviceshare/sharing"
)

// Free is the name of the geometry of devices for which the administrator lists
// none: any partition, wherever the hardware lets it start. No listed geometry
// may have this name.
const Free = "free"

// spot is one legal place: a profile and where it starts.
type spot struct {
	profile, start int
	keeps          int
}

// maxSpots bounds how many legal places are weighed. An A100 has 25.
const maxSpots = 256

// free meets a request in the n-th best legal place: the smallest profile that
// will do, where it leaves the most room for others.
func (w *wanted) free(v *sharing.View, n int, s *sharing.Share) bool {
	p := v.Device.MIG
	var spots [maxSpots]spot
	m := 0
	for f := range p.Profiles {
		if !w.met(&p.Profiles[f], p.Profiles[f].Memory) || usedUp(v, &p.Profiles[f]) {
			continue
		}
		for _, start := range p.Profiles[f].Starts {
			span, ok := spanOf(p, &p.Profiles[f], start)
			if !ok || v.Slices()&span != 0 || m == maxSpots {
				continue
			}
			spots[m] = spot{profile: f, start: start, keeps: keeps(p, v.Slices()|span)}
			for k := m; k > 0 && better(p, &spots[k], &spots[k-1]); k-- {
				spots[k], spots[k-1] = spots[k-1], spots[k]
			}
			m++
		}
	}
	if n >= m {
		return false
	}
	f := &p.Profiles[spots[n].profile]
	w.give(v.Device, f, f.Memory, sharing.Partition{
		Profile: f.Name, Start: spots[n].start, Size: f.Size,
		Geometry: Free, Position: freePosition(p, spots[n].profile, spots[n].start),
	}, s)
	return true
}

// better orders places: the smaller profile first, of equal ones the plain shape
// before its variants, of which fewer may exist; then the place that keeps most.
func better(p *sharing.Partitioning, a, b *spot) bool {
	f, g := &p.Profiles[a.profile], &p.Profiles[b.profile]
	switch {
	case smaller(f, g) || smaller(g, f):
		return smaller(f, g)
	case f.Max != g.Max:
		return f.Max == 0 || g.Max != 0 && f.Max > g.Max
	case f.Name != g.Name:
		return f.Name < g.Name
	case a.keeps != b.keeps:
		return a.keeps > b.keeps
	}
	return a.start > b.start
}

// keeps weighs the places that are still possible when these slices are taken:
// each counts as many as the memory slices it covers, so that room for a large
// partition is not given up for a small one. It stands for the metrics that
// count remaining placements, such as the fragmentation gradient of Zambianco et
// al., arXiv 2511.18906.
func keeps(p *sharing.Partitioning, taken uint64) int {
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

// usedUp reports whether as many partitions of a profile exist as may. It counts
// only where the hardware allows fewer than have room, as for the variants with
// media engines, and then takes every partition the pod itself got so far for
// one of that profile, since the view does not say.
func usedUp(v *sharing.View, f *sharing.Profile) bool {
	if f.Max <= 0 || f.Max >= room(f) {
		return false
	}
	n := v.Own()
	held := v.Held()
	for i := range held {
		if held[i].Share.Partition.Profile == f.Name {
			n++
		}
	}
	return n >= f.Max
}

// room is how many partitions of a profile fit side by side. Its starts ascend.
func room(f *sharing.Profile) int {
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
			if before(p, g, s, f, start) {
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

func before(p *sharing.Partitioning, f, start, g, other int) bool {
	if a, b := p.Profiles[f].Name, p.Profiles[g].Name; a != b {
		return a < b
	}
	return f < g || f == g && start < other
}
