// SPDX-License-Identifier: Apache-2.0

package policy

import "deviceshare/sharing"

// binpack fills devices and nodes one after the other, so that whole devices and
// whole nodes stay free for pods that need them.
type binpack struct{}

// Name implements Policy.
func (binpack) Name() string { return "binpack" }

// Device prefers the device of which most is taken afterwards, memory and
// compute counting the same. Among devices of different size that is the
// smallest that fits.
//
// A partition larger than was asked for fills a device too, with nothing: it is
// given where no device has one of the right size. Where partitions are chosen by
// best fit the device is preferred on which later requests lose least, which is
// what filling devices is for.
func (b binpack) Device(v *sharing.View, c sharing.Cost) int64 {
	switch {
	case ByLoss(b, v):
		return kept(v, c)
	case c.Loss > 0:
		return fullness(v, c.Memory, c.Cores) - 2*million
	}
	return fullness(v, c.Memory, c.Cores)
}

// Node prefers the node of which most is taken already.
func (binpack) Node(views []sharing.View, pod *sharing.PodRequest) int64 {
	percent, _ := load(views, pod)
	return percent
}
