// SPDX-License-Identifier: Apache-2.0

package policy

import "deviceshare/sharing"

// spread keeps pods apart, so that they disturb each other least.

const (
	// sharer is the weight of one pod on a device: more than all of its memory and
	// compute.
	sharer = 4_000_000
	// mostSharers bounds how many pods are weighed, so that scores stay in their bounds.
	mostSharers = 1 << 20
)

// emptiestDevice prefers the device with the fewest sharers, and among those the one of
// which least is taken afterwards.
func emptiestDevice(v *sharing.View, c sharing.Cost) int64 {
	sharers := min(int64(v.Sharers()), mostSharers)
	return -sharers*sharer - fullnessAfter(v, c.Memory, c.Cores)
}

// emptiestNode prefers the node of which least is taken already.
func emptiestNode(views []sharing.View, pod *sharing.PodRequest) float64 {
	percent, offers := nodeLoad(views, pod)
	if !offers {
		return 0
	}
	return float64(100 - percent)
}
