// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math/bits"

	"deviceshare/sharing"
)

// What is free on a device is worth what later requests can still get of it. The
// worth of each state of a device alone is worked out beforehand, as the relative
// value (Howard, Dynamic Programming and Markov Processes, 1960) of the memory
// slices that are given from then on, on a device that others ask at random and
// that gives whatever fits. Giving each request to the device, and the place on
// it, that loses least by it is the first step of policy improvement (Ott and
// Krishnan, Separable routing: a scheme for state-dependent routing of circuit
// switched telephone traffic, Annals of Operations Research 35, 1992). One step
// is enough to see that partitions leave one by one: three 1g stand longer in the
// way of a 7g than one 3g does.
//
// The requests are assumed to be of 1, 2, 4 and 8 memory slices in the ratio of
// 2 to 3 to 2 to 3, those too large for the device counting as the largest that
// fit, and to ask for 0.7 of all slices. This table is not learned, so the same
// state gives the same answer on every scheduler; learn.go replaces it where the
// policy learns. The ratio is
// the one of those tried that serves several mixes well, see docs/benchmarks.md;
// with fewer large requests in it, empty devices are not spared and the largest
// profile starves.
//
// TestTheWorthOfAStateIsWhatTheModelSays works the tables out again.

// shape is the sizes of the partitions on a device of at most 8 memory slices, by
// the slice they start at. Sizes are what matters to others; which of two
// profiles of one size it is does not.
type shape [8]uint8

// shapeOf is the shape of a device with everything that is in use on it.
func shapeOf(v *sharing.View) shape {
	var s shape
	left := takenSlices(v)
	in, _ := sliceMarksOf(v)
	for start := range s {
		f, ok := in.markAt(start).profileIndex()
		if !ok {
			continue
		}
		span := sharing.Partition{Start: start, Size: v.Device.MIG.Profiles[f].Size}.Slices()
		if left&span == span { // else it overlaps one before it
			s[start] = uint8(v.Device.MIG.Profiles[f].Size)
			left &^= span
		}
	}
	// What is in use and cannot be told apart counts as single slices.
	for ; left != 0; left &= left - 1 {
		if start := bits.TrailingZeros64(left); start < len(s) {
			s[start] = 1
		}
	}
	return s
}

// withPartition is the shape with one more partition.
func (s shape) withPartition(start, size int) shape {
	s[start] = uint8(size)
	return s
}

// forecastLoss of a shape is what it is worth less than an empty device, in thousandths
// of a memory slice, by what was learned if it is not nil; false for devices of another
// number of slices than any there is.
func (s *shape) forecastLoss(slices int, learned *losses) (int64, bool) {
	switch {
	case learned != nil:
		return learned.shapeLoss(s), true
	case slices == 4:
		return int64(loss4[s.halfState(0)]), true
	case slices == 8 && s[0] == 8:
		return lossOfAll, true
	case slices == 8:
		return int64(loss8[s.halfState(0)][s.halfState(4)]), true
	}
	return 0, false
}

// halves is how many states of four memory slices there are: each pair of slices
// is empty, holds one single, two, or a double, or all four are one.
const halves = 4*4 + 1

// halfState numbers the state of the four slices from a start on.
func (s *shape) halfState(from int) int {
	if s[from] >= 4 {
		return halves - 1
	}
	return 4*s.pairState(from) + s.pairState(from+2)
}

// pairState numbers the state of two slices.
func (s *shape) pairState(from int) int {
	if s[from] >= 2 {
		return 3
	}
	return int(min(s[from], 1) + min(s[from+1], 1))
}
