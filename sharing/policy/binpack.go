// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"deviceshare/sharing"
	"deviceshare/sharing/worth"
)

// binpack fills devices and nodes one after the other, so that whole devices and
// whole nodes stay free for pods that need them.

// fullestDevice prefers the device of which most is taken afterwards, memory and
// compute counting the same. Among devices of different size that is the
// smallest that fits.
//
// A device that gives more than was asked for comes after all that do not. Where the
// backend forecasts what later requests lose, the device is preferred on which they
// lose least, which is what filling devices is for.
func fullestDevice(v *sharing.View, c sharing.Cost) int64 {
	if whole := v.Worth(); whole > 0 {
		return 2 * (million - toMillionths(c.Loss, 2*whole))
	}
	full := fullnessAfter(v, c.Memory, c.Cores)
	if c.Loss > 0 {
		return full - 2*million
	}
	return full
}

// fullestNode prefers the node of which most is taken already, and of partitions whose loss is
// forecast the one that keeps most: 100 if nothing is lost, 0 if as much as the device is worth. So
// the same device wins whether its rivals are on its node or on another.
func fullestNode(views []sharing.View, pod *sharing.PodRequest, taken []worth.Taken) float64 {
	percent, _ := nodeLoad(views, pod)
	load, sum := float64(percent), 0.0
	for i := range taken {
		if whole := views[taken[i].Device].Worth(); whole > 0 {
			sum += max(0, 100-100*float64(taken[i].Cost.Loss)/float64(whole))
		} else {
			sum += load
		}
	}
	if len(taken) == 0 {
		return load
	}
	return sum / float64(len(taken))
}
