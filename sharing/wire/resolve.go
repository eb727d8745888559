// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"deviceshare/sharing"
	"deviceshare/sharing/mig"
)

// resolve completes a share read from the legacy text with what the inventory says
// about its device. See DecodeAssigned for what is an error. A partition of a device
// that does not say how it can be cut stays without a place: nothing is cut beside
// it, and nothing else of the node is affected.
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
	case !named && d.Mode == sharing.MIG:
		f.failf(at(offset), "no partition of device %s, which is in mode %s", s.Device, d.Mode)
	case !named:
		s.Mode = d.Mode
	case d.MIG != nil && len(d.MIG.Profiles) > 0:
		return partition(f, offset, s, d.MIG)
	}
	return s
}

// partition finds profile and place of a position. The memory is that of the
// partition: the legacy text carries what was asked, which may be less.
func partition(f *finding, offset int, s sharing.Share, p *sharing.Partitioning) sharing.Share {
	q, ok := mig.At(p, s.Partition.Geometry, s.Partition.Position)
	if !ok {
		f.failf(at(offset), "device %s has no partition %d in a geometry %s, or cannot be cut that way",
			s.Device, s.Partition.Position, s.Partition.Geometry)
		return s
	}
	s.Partition = q
	for i := range p.Profiles {
		if p.Profiles[i].Name == q.Profile {
			s.Memory = p.Profiles[i].Memory
		}
	}
	for i := range p.Geometries {
		if p.Geometries[i].Name == q.Geometry {
			s.Memory = min(s.Memory, listed(&p.Geometries[i], q.Position))
		}
	}
	return s
}

// listed is the memory a geometry gives the partition at a position.
func listed(g *sharing.Geometry, position int) sharing.Bytes {
	for _, e := range g.Entries {
		if position < e.Count {
			return e.Memory
		}
		position -= e.Count
	}
	return sharing.MaxBytes
}
