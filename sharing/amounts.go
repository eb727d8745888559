// SPDX-License-Identifier: Apache-2.0

package sharing

// Divide is the Fit of the modes that divide a device by amounts of memory and
// compute. Their backends differ in what enforces the amounts, not in how they
// add up.
//
// A request for compute 0 fits beside shares that take all compute, since it is
// promised none; only an exclusive holder keeps it out.
func (v *View) Divide(req *Request) (Cost, Reason) {
	d := v.Device
	memory := req.Memory.On(d.Memory)
	switch {
	case memory <= 0 || memory > d.Memory:
		// A percentage of a small device can come to nothing, and no memory
		// must never be granted: on the node 0 means unlimited.
		return Cost{}, NotEnoughMemory
	case req.Cores < 0 || req.Cores > d.Cores:
		return Cost{}, NotEnoughCores
	case (req.Exclusive() || req.Memory.Whole()) && !v.Empty():
		return Cost{}, NotEmpty
	case memory > v.FreeMemory():
		return Cost{}, NotEnoughMemory
	case req.Cores > v.FreeCores():
		return Cost{}, NotEnoughCores
	}
	return Cost{Memory: memory, Cores: d.coresFor(req)}, Fits
}

// coresFor is the compute that a request gets: what it asks for. A request for a whole device of
// which a part is kept back gets all compute that is offered, since there is a limit to enforce.
func (d *Device) coresFor(req *Request) Percent {
	if req.Cores == 0 && req.Memory.Whole() && !d.offersAll() {
		return min(d.Cores, 100)
	}
	return req.Cores
}

// Lacks says what the device lacks for a request as far as amounts tell, so that a
// caller need not ask the backend: Fits where only the backend knows, as for
// partitions.
func (v *View) Lacks(req *Request) Reason {
	if v.partitioner != nil {
		return Fits
	}
	_, reason := v.Divide(req)
	return reason
}

// Portion is the Share of those modes. A request for all of a device that nobody
// else uses gets it whole if all that is physically there is offered: then there is
// nothing to enforce. An amount beyond the physical memory is no whole device: the
// library takes what is missing from the host.
func (v *View) Portion(req *Request) Share {
	d := v.Device
	s := Share{Device: d.ID, Mode: d.Mode, Memory: req.Memory.On(d.Memory), Cores: d.coresFor(req)}
	all := req.Memory.Whole() || s.Memory == d.Memory && s.Memory == d.physicalMemory()
	s.Whole = all && v.Empty() && d.offersAll() && d.IsWhole(s.Memory, s.Cores)
	return s
}
