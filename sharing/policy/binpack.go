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
// A device that gives more than was asked for comes after all that do not. Where the
// backend forecasts what later requests lose, the device is preferred on which they
// lose least, which is what filling devices is for.
func (binpack) Device(v *sharing.View, c sharing.Cost) int64 {
	if worth := v.Worth(); worth > 0 {
		return scoreByLoss(c, worth)
	}
	full := fullnessAfter(v, c.Memory, c.Cores)
	if c.Loss > 0 {
		return full - 2*million
	}
	return full
}

// Percent implements LossScorer.
func (binpack) Percent(_ *sharing.View, score int64) int64 { return percentKept(score) }

// Node prefers the node of which most is taken already.
func (binpack) Node(views []sharing.View, pod *sharing.PodRequest) int64 {
	percent, _ := nodeLoad(views, pod)
	return percent
}
