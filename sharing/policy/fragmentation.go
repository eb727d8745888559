// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"

	"deviceshare/sharing"
	"deviceshare/sharing/worth"
)

// fragmentation prefers the device and the node that lose least of what later pods could use. What
// they could use is learned from the pods that arrived, see package worth.

const (
	// wholeDeviceScore is the score of a whole device, as fullnessAfter has it.
	wholeDeviceScore = 2 * million
	// steps is how many losses of a device are told apart: smaller differences are noise of what
	// was learned, and then it matters more to fill what is in use.
	steps = 10
	step  = wholeDeviceScore / steps
)

// leastLostDevice prefers the device that loses least, and among those that lose about the same the
// one of which most is in use. Partitions are compared exactly: their forecast is. A partition
// larger than asked for comes after all others.
func leastLostDevice(m *worth.Model, v *sharing.View, c sharing.Cost) int64 {
	loss := m.DeviceLoss(v, c)
	switch {
	case v.Worth() > 0:
		return -int64(math.Round(loss * wholeDeviceScore))
	case v.Partitioned():
		full := fullnessAfter(v, c.Memory, c.Cores) / (2 * steps)
		if c.Loss > 0 {
			full -= 2 * wholeDeviceScore
		}
		return full - int64(math.Round(loss*wholeDeviceScore))
	}
	return -int64(lossInSteps(loss))*step + inUse(v)
}

func lossInSteps(loss float64) float64 { return math.Floor(loss*steps + 0.5) }

// inUse is up to half a step, for the part of a device that is in use.
func inUse(v *sharing.View) int64 {
	return max(toMillionths(int64(v.UsedMemory()), int64(v.Device.Memory)), toMillionths(int64(v.UsedCores()), int64(v.Device.Cores))) * step / (2 * million)
}

// MaxPoints bounds the points, so that they can be added to other scores.
const MaxPoints = 1e5

// leastLostNode prefers the node that loses least. One point is a tenth of a device, lost by later
// pods; 0 is that they lose nothing. A share of one device adds up to half a point for the part of
// the device that is in use. Partitions whose loss is forecast are compared exactly.
func leastLostNode(m *worth.Model, h worth.Host, taken []worth.Taken, needs worth.Amounts) float64 {
	lost := m.NodeLoss(h, taken, needs)
	if hasForecast(h, taken) {
		return -min(max(math.Round(lost*steps*forecastSteps)/forecastSteps, -MaxPoints), MaxPoints)
	}
	points := -min(max(lossInSteps(lost), -MaxPoints), MaxPoints)
	if len(taken) == 1 {
		points += float64(inUse(&h.Views[taken[0].Device])) / step
	}
	return points
}

// forecastSteps is how many losses of a tenth of a device are told apart where they are forecast:
// more than a forecast tells apart, and so few that sums which differ by their order are equal.
const forecastSteps = 10_000

// hasForecast reports whether something is taken, and all of it has a forecast.
func hasForecast(h worth.Host, taken []worth.Taken) bool {
	for i := range taken {
		if h.Views[taken[i].Device].Worth() == 0 {
			return false
		}
	}
	return len(taken) > 0
}
