// SPDX-License-Identifier: Apache-2.0

package sharing

// Divide is the Fit of the modes that divide a device by amounts of memory and
// compute. Their backends differ in what enforces the amounts, not in how they
// add up. It fills in s only if the request fits.
//
// A request for compute 0 fits beside shares that take all compute, since it is
// promised none; only an exclusive holder keeps it out. A request for all of a
// device that nobody else uses gets it whole: then there is nothing to enforce.
//
// The share is written in place because returning a struct of this size through
// several functions costs more than deciding.
func (v *View) Divide(req *Request, s *Share) Reason {
	d := v.Device
	memory := req.Memory.On(d.Memory)
	switch {
	case memory <= 0 || memory > d.Memory:
		// A percentage of a small device can come to nothing, and no memory
		// must never be granted: on the node 0 means unlimited.
		return NotEnoughMemory
	case req.Cores < 0 || req.Cores > d.Cores:
		return NotEnoughCores
	case (req.Exclusive() || req.Memory.Whole()) && !v.Empty():
		return NotEmpty
	case memory > v.FreeMemory():
		return NotEnoughMemory
	case req.Cores > v.FreeCores():
		return NotEnoughCores
	}
	s.Device, s.Mode = d.ID, d.Mode
	s.Memory, s.Cores = memory, req.Cores
	s.Whole = memory == d.Memory && (req.Cores == 0 || req.Cores == 100) && v.Empty()
	return Fits
}
