// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"slices"

	"deviceshare/sharing"
)

// resolve completes a share read from today's text with what the inventory says
// about its device. See DecodeAssigned for what is an error.
func resolve(f *finding, offset int, s sharing.Share, inv *sharing.Inventory) sharing.Share {
	if inv == nil {
		return s
	}
	d, ok := inv.Device(s.Device)
	if !ok {
		return s
	}
	named := s.Mode == sharing.MIG
	switch {
	case named && d.Mode != sharing.MIG:
		f.failf(at(offset), "a partition of device %s, which is in mode %s", s.Device, d.Mode)
		return s
	case !named && d.Mode == sharing.MIG:
		f.failf(at(offset), "no partition of device %s, which is in mode %s", s.Device, d.Mode)
		return s
	case !named:
		s.Mode = d.Mode
		return s
	case d.MIG == nil:
		return s
	}
	for i := range d.MIG.Geometries {
		if g := &d.MIG.Geometries[i]; g.Name == s.Partition.Geometry {
			return inGeometry(f, offset, s, d.MIG, g)
		}
	}
	f.failf(at(offset), "device %s has no geometry %s", s.Device, s.Partition.Geometry)
	return s
}

// inGeometry finds the profile and the place of a position. The memory is that
// of the partition: today's text carries what was asked, which may be less.
func inGeometry(f *finding, offset int, s sharing.Share, p *sharing.Partitioning, g *sharing.Geometry) sharing.Share {
	places, ok := layout(p, g)
	if !ok {
		f.failf(at(offset), "geometry %s is not possible on device %s", g.Name, s.Device)
		return s
	}
	if s.Partition.Position >= len(places) {
		f.failf(at(offset), "geometry %s of device %s has no position %d", g.Name, s.Device, s.Partition.Position)
		return s
	}
	at := places[s.Partition.Position]
	s.Partition.Profile, s.Partition.Start, s.Partition.Size = at.profile.Name, at.start, at.profile.Size
	s.Memory = at.memory
	return s
}

// placed is one partition of a geometry with its place.
type placed struct {
	profile *sharing.Profile
	memory  sharing.Bytes
	start   int
}

// layout gives every partition of a geometry its place: largest first, lowest
// start first, backing up where that does not work out. The result is in the
// order of positions, that is, as the geometry was written. It is the rule of
// docs/wire.md: both sides must find the same places.
func layout(p *sharing.Partitioning, g *sharing.Geometry) ([]placed, bool) {
	var places []placed
	slots := 0
	for _, e := range g.Entries {
		i := slices.IndexFunc(p.Profiles, func(q sharing.Profile) bool { return q.Name == e.Profile })
		if i < 0 {
			return nil, false
		}
		// Counted before it is built: a count may be absurd.
		if slots += e.Count * p.Profiles[i].Size; slots > p.Slices || e.Count > maxCount {
			return nil, false
		}
		for range e.Count {
			places = append(places, placed{profile: &p.Profiles[i], memory: e.Memory})
		}
	}
	order := make([]int, len(places))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(places[b].profile.Size, places[a].profile.Size)
	})
	s := search{places: places, order: order, dead: map[state]struct{}{}}
	return places, s.from(0, 0)
}

// search is a depth-first search over the places of a geometry. It remembers the
// states that lead nowhere, so an absurd inventory cannot make it slow: there are
// at most as many states as partitions times layouts of 64 slices seen.
type search struct {
	places []placed
	order  []int
	dead   map[state]struct{}
}

type state struct {
	next int
	used uint64
}

// mostStates bounds the search; legal geometries need fewer than a hundred.
const mostStates = 1 << 14

func (s *search) from(next int, used uint64) bool {
	if next == len(s.order) {
		return true
	}
	here := state{next, used}
	if _, dead := s.dead[here]; dead || len(s.dead) > mostStates {
		return false
	}
	one := &s.places[s.order[next]]
	for _, start := range one.profile.Starts {
		mask := (uint64(1)<<one.profile.Size - 1) << start
		if used&mask == 0 {
			one.start = start
			if s.from(next+1, used|mask) {
				return true
			}
		}
	}
	s.dead[here] = struct{}{}
	return false
}
