// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"

	"deviceshare/sharing"
	"deviceshare/sharing/mig"
)

// resolver completes what the legacy text does not say. The zero value leaves it out.
type resolver struct {
	inv *sharing.Inventory // nil if nothing is known
	// begun is the mode in which the pod began; "" means that of each device.
	begun sharing.Mode
}

// resolveShare completes a share with what is known about its device. See DecodeAssigned
// for what is an error. A partition of a device that does not say how it can be cut
// stays without a place: nothing is cut beside it, and nothing else of the node is
// affected.
func (r resolver) resolveShare(f *firstError, offset int, s sharing.Share) sharing.Share {
	if r.inv == nil {
		return s
	}
	d, ok := r.inv.Device(s.Device)
	if !ok {
		return s
	}
	mode := cmp.Or(r.begun, d.Mode)
	named := s.Mode == sharing.MIG
	switch {
	case named && mode != sharing.MIG:
		f.failf(bytePosition(offset), "a partition of device %s, which is in mode %s", s.Device, mode)
	case !named && mode == sharing.MIG:
		f.failf(bytePosition(offset), "no partition of device %s, which is in mode %s", s.Device, mode)
	case !named:
		s.Mode = mode
	case d.MIG != nil && len(d.MIG.Profiles) > 0:
		return resolvePartition(f, offset, s, d.MIG)
	}
	return s
}

// resolvePartition finds profile and place of a position. The memory is that of the
// partition: the legacy text carries what was asked, which may be less.
func resolvePartition(f *firstError, offset int, s sharing.Share, p *sharing.Partitioning) sharing.Share {
	q, ok := mig.At(p, s.Partition.Geometry, s.Partition.Position)
	if !ok {
		f.failf(bytePosition(offset), "device %s has no partition %d in a geometry %s, or cannot be cut that way",
			s.Device, s.Partition.Position, s.Partition.Geometry)
		return s
	}
	s.Partition = q
	for i := range p.Profiles {
		if p.Profiles[i].Name == q.Profile {
			s.Memory = p.Profiles[i].Memory
		}
	}
	return s
}
