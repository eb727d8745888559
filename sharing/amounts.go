// SPDX-License-Identifier: Apache-2.0

package sharing

// FitAmounts is the arithmetic of the modes that divide a device by amounts:
// memory, compute, number of shares. The backends of those modes differ in what
// enforces the amounts, not in how they add up.
//
// A request for all of a device that nobody else uses gets it whole: then there
// is nothing to enforce. A request for compute 0 fits beside shares that take
// all compute, since it is promised none; only an exclusive holder keeps it out.
func FitAmounts(mode Mode, v View, req *Request) (Share, Reason) {
	d := v.Device
	memory := req.Memory.On(d.Memory)
	switch {
	case memory <= 0 || memory > d.Memory:
		// A percentage of a small device can come to nothing, and no memory
		// must never be granted: on the node 0 means unlimited.
		return Share{}, NotEnoughMemory
	case req.Cores < 0 || req.Cores > d.Cores:
		return Share{}, NotEnoughCores
	case (req.Exclusive() || req.Memory.Whole()) && !v.Empty():
		return Share{}, NotEmpty
	case memory > v.FreeMemory():
		return Share{}, NotEnoughMemory
	case req.Cores > v.FreeCores():
		return Share{}, NotEnoughCores
	}
	return Share{
		Device: d.ID,
		Mode:   mode,
		Memory: memory,
		Cores:  req.Cores,
		Whole:  memory == d.Memory && (req.Cores == 0 || req.Cores == 100) && v.Empty(),
	}, Fits
}
