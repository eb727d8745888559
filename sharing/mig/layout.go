// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"slices"

	"deviceshare/sharing"
)

const (
	// maxInstances bounds how many partitions a geometry may have. The largest
	// device has 8 memory slices.
	maxInstances = 64
	// maxTries bounds the search for a layout. Real geometries need fewer than a hundred
	// tries; a malicious one must not stop the scheduler.
	maxTries = 250
)

// instance is one partition of a geometry: of which profile, with how much memory, for requests of
// how much at most, and where.
type instance struct {
	memory  sharing.Bytes
	nominal sharing.Bytes
	profile int32
	start   int32
}

// layout is where the partitions of a geometry lie, by their position. There are none if it cannot
// be laid out.
type layout struct{ at []instance }

// plan is the layouts of a device's geometries.
type plan []layout

// Plan implements sharing.Planner: how a device can be cut follows from the device alone. Each
// geometry may be compared with each other one; of free places there are a few per profile.
func (backend) Plan(d *sharing.Device) (any, int) {
	if d.MIG == nil {
		return nil, 1
	}
	n := len(d.MIG.Geometries)
	if n == 0 {
		return nil, 1 + 2*len(d.MIG.Profiles)
	}
	all := make(plan, n)
	for g := range d.MIG.Geometries {
		var s sketch
		if s.buildLayout(d.MIG, &d.MIG.Geometries[g]) == "" {
			all[g].at = slices.Clone(s.at[:s.n])
		}
	}
	return all, 1 + n + n*n/2
}

// laidOut is the layout of a geometry; false if it has none.
func laidOut(v *sharing.View, g int) (*layout, bool) {
	all, ok := v.Plan().(plan)
	if !ok {
		return nil, false
	}
	return &all[g], len(all[g].at) > 0
}

// sketch is a layout that is being worked out.
type sketch struct {
	n     int
	at    [maxInstances]instance
	order [maxInstances]uint8 // positions, largest partition first
	tries int
}

// At finds the partition that a wire id names: the position in a geometry the
// device lists, or, for the geometry Free, in the list of all legal places. Every side
// that lays out the same geometry on the same device finds the same partition.
func At(p *sharing.Partitioning, geometry string, position int) (sharing.Partition, bool) {
	if position < 0 {
		return sharing.Partition{}, false
	}
	if geometry == Free {
		return freeAt(p, position)
	}
	for i := range p.Geometries {
		g := &p.Geometries[i]
		if g.Name != geometry {
			continue
		}
		var s sketch
		if s.buildLayout(p, g) != "" || position >= s.n {
			return sharing.Partition{}, false
		}
		return s.at[position].asPartition(p, g, position), true
	}
	return sharing.Partition{}, false
}

func (at *instance) asPartition(p *sharing.Partitioning, g *sharing.Geometry, position int) sharing.Partition {
	f := &p.Profiles[at.profile]
	return sharing.Partition{Profile: f.Name, Start: int(at.start), Size: f.Size, Geometry: g.Name, Position: position}
}

// buildLayout works out the layout; it returns what is wrong with the geometry, or "".
// The texts are constant so that finding a geometry unusable costs nothing.
func (s *sketch) buildLayout(p *sharing.Partitioning, g *sharing.Geometry) string {
	s.n, s.tries = 0, 0
	if problem := s.addInstances(p, g); problem != "" {
		return problem
	}
	for i := range s.n {
		s.order[i] = uint8(i)
		for k := i; k > 0 && s.isLarger(p, s.order[k], s.order[k-1]); k-- {
			s.order[k], s.order[k-1] = s.order[k-1], s.order[k]
		}
	}
	if !s.assignStarts(p, 0, 0) {
		return "its partitions cannot exist together"
	}
	return ""
}

// addInstances writes down the partitions in the order of the geometry.
func (s *sketch) addInstances(p *sharing.Partitioning, g *sharing.Geometry) string {
	for _, e := range g.Entries {
		f := findProfile(p, e.Profile)
		switch {
		case f < 0:
			return "it names a profile the device does not have"
		case e.Count < 0 || e.Count > maxInstances-s.n:
			return "it has a count that no device can hold"
		case p.Profiles[f].Size <= 0:
			return "it names a profile without memory slices"
		}
		one := instance{profile: int32(f), memory: p.Profiles[f].Given(e.Memory), nominal: p.Profiles[f].Nominal(e.Memory)}
		for range e.Count {
			s.at[s.n] = one
			s.n++
		}
		if most := p.Profiles[f].Max; most > 0 && s.countAgainstBound(p, f) > most {
			return "it has more partitions of a profile than the device allows"
		}
	}
	if s.n == 0 {
		return "it has no partitions"
	}
	return ""
}

// countAgainstBound returns how many partitions of the layout count against the bound of a profile.
func (s *sketch) countAgainstBound(p *sharing.Partitioning, f int) int {
	n := 0
	for i := range s.at[:s.n] {
		if sharesBound(p.Profiles[s.at[i].profile].Name, p.Profiles[f].Name) {
			n++
		}
	}
	return n
}

// isLarger orders positions for laying out: more memory slices first, then more
// compute, since those have the fewest legal starts; then as written.
func (s *sketch) isLarger(p *sharing.Partitioning, a, b uint8) bool {
	f, g := &p.Profiles[s.at[a].profile], &p.Profiles[s.at[b].profile]
	return f.Size > g.Size || f.Size == g.Size && f.Compute > g.Compute
}

// assignStarts chooses starts for the partitions from the k-th largest on: for each the lowest
// legal start that leaves room for the rest. It is false if there are none.
func (s *sketch) assignStarts(p *sharing.Partitioning, k int, taken uint64) bool {
	if k == s.n {
		return true
	}
	at := &s.at[s.order[k]]
	f := &p.Profiles[at.profile]
	for _, start := range f.Starts {
		// Equal partitions are interchangeable: the later one lies behind.
		if k > 0 && s.at[s.order[k-1]].profile == at.profile && int32(start) <= s.at[s.order[k-1]].start {
			continue
		}
		span, ok := spanOf(p, f, start)
		if !ok || taken&span != 0 {
			continue
		}
		if s.tries++; s.tries > maxTries {
			return false
		}
		at.start = int32(start)
		if s.assignStarts(p, k+1, taken|span) {
			return true
		}
	}
	return false
}

// spanOf is the memory slices a profile covers from a start on; false if they are
// not all on the device.
func spanOf(p *sharing.Partitioning, f *sharing.Profile, start int) (uint64, bool) {
	if start < 0 || f.Size <= 0 || f.Size > p.Slices || start > p.Slices-f.Size || p.Slices > 64 {
		return 0, false
	}
	return sharing.Partition{Start: start, Size: f.Size}.Slices(), true
}
