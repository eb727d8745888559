// SPDX-License-Identifier: Apache-2.0

package policy

import "deviceshare/sharing"

// MaxWeight bounds the weight of a mode.
const MaxWeight = 1_000_000

// Weights is the weights of the modes when they compete. A weight of 1 counts as much as
// one percent of a device's memory and compute. A mode that is missing has weight 0.
type Weights map[sharing.Mode]float64

// WithModes returns the policy with the modes' weights added to its scores of
// devices. Scores of nodes are left to the caller, who knows which mode a pod
// would get there. Weights count from 0 to MaxWeight.
func WithModes(p Policy, w Weights) Policy {
	const percent = 2 * million / 100 // fullness is of memory and of compute
	p.points = map[sharing.Mode]int64{}
	for m, weight := range w {
		if weight > 0 {
			p.points[m] = int64(min(weight, MaxWeight) * percent)
		}
	}
	return p
}
