// SPDX-License-Identifier: Apache-2.0

package sharing

// Partitioner is an optional power of a backend whose devices are cut into
// partitions by their hardware. A share of such a device is a place on it, and
// amounts of memory and compute do not add up there. The backend accounts for the
// places instead, in the tally of the device's view.
//
// NewView and NewLedger discover it. The rules of Backend.Fit apply to its methods.
type Partitioner interface {
	Backend
	// IsKnown reports whether the node says which partitions the device can have. One
	// for which it does not is refused with PartitionsUnknown.
	IsKnown(d *Device) bool
	// Count returns the tally with one more partition that a pod on the device holds.
	// The zero partition is a share whose place nobody knows.
	Count(t Tally, d *Device, p Partition) Tally
	// CountOwn returns the tally with one more partition that the pod being placed
	// got for a container of this kind.
	CountOwn(t Tally, d *Device, p Partition, kind ContainerKind) Tally
	// Alike reports whether two devices on which other pods hold nothing would treat
	// every request the same, by their tallies. It may say false of devices that would.
	Alike(d *Device, t Tally, e *Device, u Tally) bool
	// Most returns the most memory and the most compute, in percent of the device, that
	// a partition could still have, and what it could have on an empty device. Both are
	// upper bounds. The first is zero if no partition can be had.
	Most(v *View) (left, empty Cost)
}

// Planner is an optional power of a Partitioner that works out beforehand what follows from a
// device alone, so that deciding about a request does not work it out again and again.
type Planner interface {
	Partitioner
	// Plan returns it. Every view of the device has it, see View.Plan. It must not be changed
	// later. effort is how much work a question about the device is at most, where one about
	// amounts is 1.
	Plan(d *Device) (plan any, effort int)
}

// Forecaster is an optional power of a Partitioner that forecasts what later requests
// lose by a share. View.Worth discovers it.
type Forecaster interface {
	Partitioner
	// Worth returns what the empty device is worth to later requests, in the unit of
	// Cost.Loss; 0 if the loss on this device is not a forecast.
	Worth(d *Device) int64
}

// Learner is an optional power of a Forecaster: its forecasts follow what was asked for.
type Learner interface {
	Forecaster
	// Learn returns the backend with forecasts for these demands, one of each kind of device.
	// It is pure: the same demands give the same forecasts. It may take milliseconds.
	Learn(demands []Demand) Backend
}

// Demand is what pods asked of devices that are alike.
type Demand struct {
	// Device is one of them, which must not be changed later.
	Device *Device
	Asked  []Asked
}

// Asked is how many pods made a request.
type Asked struct {
	Request Request
	Count   int
}

// Tally is what a Partitioner notes about the partitions on one device. Nobody else
// reads its words. Its size is fixed, so that a view is copied and compared without
// allocating; the zero value is the tally of an empty device.
type Tally [5]uint64

// partitionerFor returns the backend of a mode if its devices are cut into partitions,
// else nil.
func (b Backends) partitionerFor(m Mode) Partitioner {
	backend, _ := b.For(m)
	p, _ := backend.(Partitioner)
	return p
}
