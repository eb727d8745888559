// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math/bits"

	"deviceshare/sharing"
)

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

// The state of two memory slices is how many partitions of one slice they hold, or doublePair. The
// state of four is 4 times that of the first pair plus that of the second, or fullHalf.
const (
	doublePair = 3       // one partition of two slices
	fullHalf   = 4 * 4   // one partition of four slices
	halfStates = 4*4 + 1 // how many states four slices have
)

// halfState returns the state of the four slices from a start on.
func (s *shape) halfState(from int) int {
	if s[from] >= 4 {
		return fullHalf
	}
	return 4*s.pairState(from) + s.pairState(from+2)
}

func (s *shape) pairState(from int) int {
	if s[from] >= 2 {
		return doublePair
	}
	return int(min(s[from], 1) + min(s[from+1], 1))
}
