// SPDX-License-Identifier: Apache-2.0

package policy

import "deviceshare/sharing"

// MaxWeight bounds the weight of a mode.
const MaxWeight = 1_000_000

// Weights is the weights of the modes when they compete. A weight of 1 counts as much as
// one percent of a device's memory and compute. A mode that is missing has weight 0.
type Weights map[sharing.Mode]float64

// weighted adds the weight of a device's mode to the policy's score.
type weighted struct {
	Policy
	points map[sharing.Mode]int64
}

// WithModes returns the policy with the modes' weights added to its scores of
// devices. Scores of nodes are left to the caller, who knows which mode a pod
// would get there. Weights count from 0 to MaxWeight.
func WithModes(p Policy, w Weights) Policy {
	const percent = 2 * million / 100 // fullness is of memory and of compute
	points := map[sharing.Mode]int64{}
	for m, weight := range w {
		if weight > 0 {
			points[m] = int64(min(weight, MaxWeight) * percent)
		}
	}
	if len(points) == 0 {
		return p
	}
	one := weighted{Policy: p, points: points}
	switch s := p.(type) {
	case LossScorer:
		return weightedByLoss{weighted: one, scorer: s}
	case Valuer:
		return weightedByWorth{weighted: one, Valuer: s}
	}
	return one
}

// Device implements Policy.
func (w weighted) Device(v *sharing.View, c sharing.Cost) int64 {
	return w.Policy.Device(v, c) + w.points[v.Device.Mode]
}

// weightedByWorth keeps the optional power of the policy that is weighted.
type weightedByWorth struct {
	weighted
	Valuer
}

// Name implements Policy.
func (w weightedByWorth) Name() string { return w.weighted.Name() }

// Device implements Policy.
func (w weightedByWorth) Device(v *sharing.View, c sharing.Cost) int64 {
	return w.weighted.Device(v, c)
}

// Node implements Policy.
func (w weightedByWorth) Node(views []sharing.View, pod *sharing.PodRequest) int64 {
	return w.weighted.Node(views, pod)
}

// weightedByLoss keeps the optional power of the policy that is weighted.
type weightedByLoss struct {
	weighted
	scorer LossScorer
}

// Percent implements LossScorer.
func (w weightedByLoss) Percent(v *sharing.View, score int64) int64 {
	return w.scorer.Percent(v, score-w.points[v.Device.Mode])
}
