// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"slices"

	"deviceshare/sharing"
)

// What is in use on a device is kept in the words of its view's tally:
const (
	// wordTaken has the memory slices that partitions cover, bit i for slice i, those
	// that init containers of pods have among them.
	wordTaken = iota
	// wordMarks is the first of two words with the partitions that must keep their
	// place: those in use, and those that init containers had, since they may run
	// again. Byte i says which profile begins at slice i, see mark.
	wordMarks
	_
	// wordAgain has the memory slices that only init containers of the pod being
	// placed have, see isFree.
	wordAgain
	// wordOwn is how many partitions the pod being placed has that View.Held does not
	// list.
	// Its bit isAdrift says that a share is on the device whose place nobody knows.
	wordOwn
)

// isAdrift is the bit of wordOwn that says so.
const isAdrift = 1 << 63

// marks is how many slices have a mark: twice those of the largest device there is.
const marks = 16

// mark says which profile begins at a memory slice: 0 for none, else the position
// among the profiles of the device's Partitioning plus one.
type mark uint8

// conflictMark marks a slice where no layout can agree with what is in use: a profile
// the device does not have, a start beyond the last slice, or two partitions that
// begin at the same slice, as facts that others wrote down may have them.
const conflictMark mark = 255

// markOf is the mark of a profile by its position. No partition that is given has a
// profile whose mark would be uncommon.
func markOf(profile int) mark { return mark(min(profile+1, int(conflictMark))) }

// profileIndex is the position of the profile that begins here; false if none does that
// the device has.
func (m mark) profileIndex() (int, bool) { return int(m) - 1, m != 0 && m != conflictMark }

// sliceMarks is the marks of all slices of a device.
type sliceMarks [marks / 8]uint64

// markAt is the mark of a slice from 0 to marks-1.
func (c *sliceMarks) markAt(slice int) mark { return mark(c[slice/8] >> (slice % 8 * 8)) }

func (c *sliceMarks) setMark(slice int, m mark) {
	shift := slice % 8 * 8
	c[slice/8] = c[slice/8]&^(0xff<<shift) | uint64(m)<<shift
}

func (c *sliceMarks) addPartition(p sharing.Partition, device *sharing.Partitioning) {
	start := min(max(p.Start, 0), marks-1)
	m := conflictMark
	if f := profileOf(p, device); f >= 0 && start == p.Start {
		m = markOf(f)
	}
	if was := c.markAt(start); was != 0 && was != m {
		m = conflictMark
	}
	c.setMark(start, m)
}

// profileOf is the position of the profile a partition has; -1 if the device does
// not have it.
func profileOf(p sharing.Partition, device *sharing.Partitioning) int {
	if device == nil {
		return -1
	}
	f := findProfile(device, p.Profile)
	if f >= 0 && device.Profiles[f].Size != p.Size {
		return -1
	}
	return f
}

// sliceMarksIn is the marks in the words of a tally.
func sliceMarksIn(t *sharing.Tally) sliceMarks { return sliceMarks{t[wordMarks], t[wordMarks+1]} }

// takenSlices is the memory slices in use, bit i for slice i.
func takenSlices(v *sharing.View) uint64 { return v.Tally()[wordTaken] }

// sliceMarksOf is the partitions in use by their places. The geometry that one was named
// after may be another than those the device has now. It is not ok if the place of
// some share is not known: then nothing can be cut beside it.
func sliceMarksOf(v *sharing.View) (c sliceMarks, ok bool) {
	t := v.Tally()
	return sliceMarksIn(t), v.Partitioned() && t[wordOwn]&isAdrift == 0
}

// ownCount is how many partitions the pod being placed has that v.Held does not list.
func ownCount(v *sharing.View) int { return int(v.Tally()[wordOwn] &^ isAdrift) }

// isFree reports whether the next container may have the partition of a profile that
// begins at start and covers these slices: nobody has any of them, or an earlier init
// container of the same pod has exactly this partition. The containers of a pod are
// prepared together, whichever of them starts, so what a pod holds never overlaps in
// itself.
func isFree(v *sharing.View, profile, start int, span uint64) bool {
	t := v.Tally()
	switch used := t[wordTaken] & span; {
	case used == 0:
		return true
	case used != span || used&^t[wordAgain] != 0 || start >= marks:
		return false
	}
	c := sliceMarksIn(t)
	m := c.markAt(start)
	return m != conflictMark && m == markOf(profile)
}

func (backend) IsKnown(d *sharing.Device) bool { return d.MIG != nil && len(d.MIG.Profiles) > 0 }

func (backend) Count(t sharing.Tally, d *sharing.Device, p sharing.Partition) sharing.Tally {
	if p.IsZero() {
		t[wordOwn] |= isAdrift
		return t
	}
	t[wordTaken] |= p.Slices()
	c := sliceMarksIn(&t)
	c.addPartition(p, d.MIG)
	t[wordMarks], t[wordMarks+1] = c[0], c[1]
	return t
}

func (b backend) CountOwn(t sharing.Tally, d *sharing.Device, p sharing.Partition, kind sharing.ContainerKind) sharing.Tally {
	after := b.Count(t, d, p)
	if p.IsZero() {
		return after
	}
	after[wordOwn]++
	if kind == sharing.Init {
		after[wordAgain] |= p.Slices() &^ t[wordTaken]
	} else {
		after[wordAgain] &^= p.Slices()
	}
	return after
}

// Alike implements sharing.Partitioner. How many partitions the pod has on a device
// plays no part unless the device is full of them.
func (backend) Alike(d *sharing.Device, t sharing.Tally, e *sharing.Device, u sharing.Tally) bool {
	t[wordOwn] &= isAdrift
	u[wordOwn] &= isAdrift
	return t == u && (d.MIG == e.MIG || d.MIG != nil && e.MIG != nil && isSamePartitioning(d.MIG, e.MIG))
}

// isSamePartitioning reports whether two devices allow the same partitions.
func isSamePartitioning(p, q *sharing.Partitioning) bool {
	return p.Slices == q.Slices && p.Policy == q.Policy &&
		slices.EqualFunc(p.Profiles, q.Profiles, func(a, b sharing.Profile) bool {
			return a.Name == b.Name && a.Memory == b.Memory && a.Compute == b.Compute && a.Size == b.Size &&
				a.Max == b.Max && slices.Equal(a.Starts, b.Starts)
		}) &&
		slices.EqualFunc(p.Geometries, q.Geometries, func(a, b sharing.Geometry) bool {
			return a.Name == b.Name && slices.Equal(a.Entries, b.Entries)
		})
}

// Most implements sharing.Partitioner by the profiles that may still start
// somewhere, as much as may be asked of each. Geometries may allow fewer of them; that is not
// looked at.
func (backend) Most(v *sharing.View) (left, empty sharing.Cost) {
	for i := range v.Device.MIG.Profiles {
		f := &v.Device.MIG.Profiles[i]
		c := sharing.Cost{Memory: v.Device.MIG.Nominal(f), Cores: sharing.Percent(f.Compute)}
		empty = maxCost(empty, c)
		for _, start := range f.Starts {
			if takenSlices(v)&(sharing.Partition{Start: start, Size: f.Size}).Slices() == 0 {
				left = maxCost(left, c)
			}
		}
	}
	if compute := empty.Cores; compute > 0 {
		left.Cores, empty.Cores = left.Cores*100/compute, 100
	}
	return left, empty
}

// maxCost is the larger of each amount of two costs.
func maxCost(a, b sharing.Cost) sharing.Cost {
	return sharing.Cost{Memory: max(a.Memory, b.Memory), Cores: max(a.Cores, b.Cores)}
}

// Worth implements sharing.Forecaster: best fit forecasts in thousandths of a memory
// slice, of which a device has a thousand for each of its slices.
func (backend) Worth(d *sharing.Device) int64 {
	if d.MIG == nil || d.MIG.Policy != sharing.BestFit {
		return 0
	}
	return 1000 * int64(d.MIG.Slices)
}
