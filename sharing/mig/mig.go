// SPDX-License-Identifier: Apache-2.0

// Package mig is the scheduler half of mode mig. The hardware divides a device into
// partitions, and a container gets one of them.
//
// Which partitions can exist together depends on the configuration:
//   - With geometries listed for the device, all partitions in use must have their place in
//     one of the geometries. A device may change from one geometry to another while
//     containers run on it, if their partitions have the same place in the new one.
//   - Without geometries, a partition may start wherever the hardware allows it.
//
// Two partitions collide if their spans of memory slices overlap. Nothing else decides that.
// The name of a partition in annotations (geometry and position) is only a name. It is fixed
// when the partition is made, and scheduler and node compute it by the same rule: see Layout
// and At. Partitions on one device may be named after different geometries.
package mig

import "deviceshare/sharing"

// backend holds no state: what was learned is a part of the value, like an argument.
type backend struct{ learned *[]forecast }

// New returns the backend, with the usual losses.
func New() sharing.Backend { return backend{} }

func (backend) Mode() sharing.Mode { return sharing.MIG }

// Fit implements sharing.Backend. The request gets the smallest free partition
// with at least the memory and the compute it asks for; what is taken is what the
// partition has. An amount is met by a partition that is nominally as large, see
// sharing.Profile.Nominal.
//
// A percentage of the memory is one of the memory slices: half of an A100 is a
// 3g, although the hardware keeps some memory back and the bytes of a 3g are a
// little less than half of those the device reports. In the same way all of the
// memory is the largest partition the hardware offers, and nothing less.
func (b backend) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	var s sharing.Share
	loss, ok := b.findOption(v, req, 0, &s)
	if !ok {
		return sharing.Cost{}, sharing.NoPartitionFits
	}
	cost := s.Cost()
	cost.Loss = loss
	return cost, sharing.Fits
}

func (b backend) Share(v *sharing.View, req *sharing.Request) (s sharing.Share) {
	_, _ = b.findOption(v, req, 0, &s) // Fit has said that it fits
	return s
}

// Option implements sharing.Chooser: the same request can be met from different
// geometries, or at different starts.
func (b backend) Option(v *sharing.View, req *sharing.Request, n int) (s sharing.Share, c sharing.Cost, ok bool) {
	loss, ok := b.findOption(v, req, n, &s)
	c = s.Cost()
	c.Loss = loss
	return s, c, ok
}

// findOption finds the n-th way to meet a request, and what later requests lose by it. With
// first match, the loss is the memory slices that were not asked for.
func (b backend) findOption(v *sharing.View, req *sharing.Request, n int, s *sharing.Share) (loss int64, ok bool) {
	p := v.Device.MIG
	if _, known := sliceMarksOf(v); p == nil || !known {
		return 0, false
	}
	w := resolveRequest(v.Device, req)
	switch {
	case p.Policy == sharing.BestFit:
		return w.bestFit(v, b.lossesOf(v.Device), n, s)
	case len(p.Geometries) == 0:
		ok = w.fitAnywhere(v, n, s)
	default:
		ok = w.firstMatch(v, n, s)
	}
	if !ok {
		return 0, false
	}
	least, _ := w.leastSlices(p)
	return 1000 * int64(s.Partition.Size-least), true
}

// leastSlices returns the fewest memory slices that are enough; false, and all of them, if no
// profile is.
func (w *wanted) leastSlices(p *sharing.Partitioning) (size int, ok bool) {
	size = p.Slices
	for f := range p.Profiles {
		if q := &p.Profiles[f]; q.Size <= size && w.mayBeMetBy(q, 0) {
			size, ok = q.Size, true
		}
	}
	return size, ok
}

// firstMatch meets a request from the n-th geometry of the list that can.
func (w *wanted) firstMatch(v *sharing.View, n int, s *sharing.Share) bool {
	for g := range v.Device.MIG.Geometries {
		if !w.fitGeometry(v, g, s) {
			continue
		}
		if n == 0 {
			return true
		}
		n--
	}
	return false
}

// wanted is what a request asks of a partition.
type wanted struct {
	memory  sharing.Bytes
	cores   sharing.Percent
	slices  int              // memory slices, if a percentage is asked for
	compute int              // compute slices of the whole device
	whole   *sharing.Profile // the largest, if all memory is asked for
}

func resolveRequest(d *sharing.Device, req *sharing.Request) wanted {
	w := wanted{memory: req.Memory.On(d.Memory), cores: req.Cores}
	if percent, ok := req.Memory.Percent(); ok {
		w.slices = (int(percent)*d.MIG.Slices + 99) / 100
	}
	for i := range d.MIG.Profiles {
		p := &d.MIG.Profiles[i]
		w.compute = max(w.compute, p.Compute)
		if req.Memory.Whole() && (w.whole == nil || isSmallerProfile(w.whole, p)) {
			w.whole = p
		}
	}
	return w
}

// mayBeMetBy reports whether a partition of profile p is enough that is listed with this memory; 0
// is not listed.
func (w *wanted) mayBeMetBy(p *sharing.Profile, listed sharing.Bytes) bool {
	// Names are read only if what the partition has is not enough.
	return w.isMetBy(p, p.Memory) || w.isMetBy(p, p.Nominal(listed))
}

// isMetBy reports whether a partition of profile p that is nominally of this memory is enough.
func (w *wanted) isMetBy(p *sharing.Profile, nominal sharing.Bytes) bool {
	if w.cores < 0 || w.cores > w.coresOf(p) {
		return false
	}
	switch {
	case w.whole != nil:
		return p.Memory >= w.whole.Memory && p.Compute >= w.whole.Compute
	case w.slices > 0:
		return p.Size >= w.slices
	}
	return w.memory > 0 && nominal >= w.memory
}

// coresOf is the compute of a partition in percent of the device, rounded down.
func (w *wanted) coresOf(p *sharing.Profile) sharing.Percent {
	if w.compute <= 0 {
		return 0
	}
	return sharing.Percent(p.Compute * 100 / w.compute)
}

// isSmallerProfile orders profiles by what they take of a device.
func isSmallerProfile(a, b *sharing.Profile) bool {
	return a.Memory < b.Memory || a.Memory == b.Memory &&
		(a.Compute < b.Compute || a.Compute == b.Compute && a.Size < b.Size)
}

// writeShare writes the share of a partition to s.
func (w *wanted) writeShare(d *sharing.Device, p *sharing.Profile, memory sharing.Bytes, part sharing.Partition, s *sharing.Share) {
	s.Device, s.Mode = d.ID, sharing.MIG
	s.Memory, s.Cores = memory, w.coresOf(p)
	s.Partition = part
}

// findProfile finds a profile by name; -1 if the device has none of that name.
func findProfile(p *sharing.Partitioning, name string) int {
	for i := range p.Profiles {
		if p.Profiles[i].Name == name {
			return i
		}
	}
	return -1
}
