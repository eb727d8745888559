// SPDX-License-Identifier: Apache-2.0

// Package mig is the scheduler half of mode mig: a device is cut into partitions
// by its hardware, and a container gets one of them.
//
// Which partitions can exist together is decided in one of two ways. If the
// administrator lists geometries for the device, the first geometry with a free
// partition that is large enough is used, and while anybody holds a partition of
// it the device keeps it. Without geometries any partition may be cut where the
// hardware lets it start.
//
// The span of memory slices of a partition decides whether two of them collide.
// Its name on the wire, geometry and position, follows from the span and is
// worked out the same way on both sides: see Layout and At.
package mig

import "deviceshare/sharing"

type backend struct{}

// New returns the backend. It holds no state.
func New() sharing.Backend { return backend{} }

// Mode implements sharing.Backend.
func (backend) Mode() sharing.Mode { return sharing.MIG }

// Fit implements sharing.Backend. The request gets the smallest free partition
// with at least the memory and the compute it asks for; what is taken is what the
// partition has.
//
// A percentage of the memory is one of the memory slices: half of an A100 is a
// 3g, although the hardware keeps some memory back and the bytes of a 3g are a
// little less than half of those the device reports. In the same way all of the
// memory is the largest partition the hardware offers, and nothing less.
func (b backend) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	var s sharing.Share
	if !option(v, req, 0, &s) {
		return sharing.Cost{}, sharing.NoPartitionFits
	}
	return s.Cost(), sharing.Fits
}

// Share implements sharing.Backend.
func (b backend) Share(v *sharing.View, req *sharing.Request) (s sharing.Share) {
	option(v, req, 0, &s)
	return s
}

// Option implements sharing.Chooser: the same request can be met from different
// geometries, or at different starts.
func (b backend) Option(v *sharing.View, req *sharing.Request, n int) (s sharing.Share, ok bool) {
	ok = option(v, req, n, &s)
	return s, ok
}

// option finds the n-th way to meet a request.
func option(v *sharing.View, req *sharing.Request, n int, s *sharing.Share) bool {
	p := v.Device.MIG
	inForce, ok := v.Geometry()
	if p == nil || !ok {
		return false
	}
	w := want(v.Device, req)
	if len(p.Geometries) == 0 {
		return (inForce == "" || inForce == Free) && w.free(v, n, s)
	}
	for i := range p.Geometries {
		g := &p.Geometries[i]
		if inForce != "" && inForce != g.Name {
			continue
		}
		if !w.listed(v, g, s) {
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

// want resolves a request on a device.
func want(d *sharing.Device, req *sharing.Request) wanted {
	w := wanted{memory: req.Memory.On(d.Memory), cores: req.Cores}
	if percent, ok := req.Memory.Percent(); ok {
		w.slices = (int(percent)*d.MIG.Slices + 99) / 100
	}
	for i := range d.MIG.Profiles {
		p := &d.MIG.Profiles[i]
		w.compute = max(w.compute, p.Compute)
		if req.Memory.Whole() && (w.whole == nil || smaller(w.whole, p)) {
			w.whole = p
		}
	}
	return w
}

// met reports whether a partition of profile p with this much memory will do.
func (w *wanted) met(p *sharing.Profile, memory sharing.Bytes) bool {
	if w.cores < 0 || w.cores > w.percent(p) {
		return false
	}
	switch {
	case w.whole != nil:
		return p.Memory >= w.whole.Memory && p.Compute >= w.whole.Compute
	case w.slices > 0:
		return p.Size >= w.slices
	}
	return w.memory > 0 && memory >= w.memory
}

// percent is the compute of a partition in percent of the device, rounded down.
func (w *wanted) percent(p *sharing.Profile) sharing.Percent {
	if w.compute <= 0 {
		return 0
	}
	return sharing.Percent(p.Compute * 100 / w.compute)
}

// smaller orders profiles by what they take of a device.
func smaller(a, b *sharing.Profile) bool {
	switch {
	case a.Memory != b.Memory:
		return a.Memory < b.Memory
	case a.Compute != b.Compute:
		return a.Compute < b.Compute
	}
	return a.Size < b.Size
}

// give fills in the share.
func (w *wanted) give(d *sharing.Device, p *sharing.Profile, memory sharing.Bytes, part sharing.Partition, s *sharing.Share) {
	s.Device, s.Mode = d.ID, sharing.MIG
	s.Memory, s.Cores = memory, w.percent(p)
	s.Partition = part
}

// profile finds a profile by name; -1 if the device has none of that name.
func profile(p *sharing.Partitioning, name string) int {
	for i := range p.Profiles {
		if p.Profiles[i].Name == name {
			return i
		}
	}
	return -1
}
