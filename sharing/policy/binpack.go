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
func (binpack) Device(v *sharing.View, c sharing.Cost) int64 {
	return fullness(v, c.Memory, c.Cores)
}

// Node prefers the node of which most is taken already.
func (binpack) Node(views []sharing.View, pod *sharing.PodRequest) int64 {
	percent, _ := load(views, pod)
	return percent
}
