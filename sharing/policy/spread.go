// SPDX-License-Identifier: Apache-2.0

package policy

import "deviceshare/sharing"

// spread keeps pods apart, so that they disturb each other least.
type spread struct{}

// sharer is what one more pod on a device weighs: more than all of its memory
// and compute.
const sharer = 4 * million

// Name implements Policy.
func (spread) Name() string { return "spread" }

// Device prefers the device with the fewest sharers, and among those the one of
// which least is taken afterwards.
func (spread) Device(v *sharing.View, c sharing.Cost) int64 {
	sharers := min(int64(v.Sharers()), MaxScore/sharer/2)
	return -sharers*sharer - fullness(v, c.Memory, c.Cores)
}

// Node prefers the node of which least is taken already.
func (spread) Node(views []sharing.View, pod *sharing.PodRequest) int64 {
	percent, offers := load(views, pod)
	if !offers {
		return 0
	}
	return 100 - percent
}
