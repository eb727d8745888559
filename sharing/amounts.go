// SPDX-License-Identifier: Apache-2.0

package sharing

// Amount says how much memory of the device a request takes in the modes that
// divide a device by amounts of memory and compute, or what the device lacks for
// it. The backends of those modes differ in what enforces the amounts, not in
// how they add up.
//
// A request for compute 0 fits beside shares that take all compute, since it is
// promised none; only an exclusive holder keeps it out.
func (v *View) Amount(req *Request) (Bytes, Reason) {
	d := v.Device
	memory := req.Memory.On(d.Memory)
	switch {
	case memory <= 0 || memory > d.Memory:
		// A percentage of a small device can come to nothing, and no memory
		// must never be granted: on the node 0 means unlimited.
		return 0, NotEnoughMemory
	case req.Cores < 0 || req.Cores > d.Cores:
		return 0, NotEnoughCores
	case (req.Exclusive() || req.Memory.Whole()) && !v.Empty():
		return 0, NotEmpty
	case memory > v.FreeMemory():
		return 0, NotEnoughMemory
	case req.Cores > v.FreeCores():
		return 0, NotEnoughCores
	}
	return memory, Fits
}

// Give is the share of a request that takes this much memory of the device. A
// request for all of a device that nobody else uses gets it whole: then there is
// nothing to enforce.
func (v *View) Give(req *Request, memory Bytes) Share {
	return Share{
		Device: v.Device.ID,
		Mode:   v.Device.Mode,
		Memory: memory,
		Cores:  req.Cores,
		Whole:  memory == v.Device.Memory && req.Cores%100 == 0 && v.usage.sharers == 0,
	}
}
