// SPDX-License-Identifier: Apache-2.0

package sharing

// Owner is the UID of the pod that holds shares.
type Owner string

// Partition is a place on a device: Size memory slices from Start on. The zero
// value means the share is not a partition.
type Partition struct {
	Profile string
	Start   int
	Size    int
	// Geometry and Position name the same place as the wire id
	// uuid[geometry-position] does: the running number through the geometry in
	// the order it was written.
	Geometry string
	Position int
}

// IsZero reports that there is no partition.
func (p Partition) IsZero() bool { return p.Size == 0 }

// Slices is the set of memory slices the partition covers, bit i for slice i. A
// place beyond the 64th, which no device has, counts as all of them: a placement that
// makes no sense must not leave room beside it.
func (p Partition) Slices() uint64 {
	switch {
	case p.Size == 0:
		return 0
	case p.Size < 0 || p.Start < 0 || p.Size > 63 || p.Start > 64-p.Size:
		return ^uint64(0)
	}
	return (1<<p.Size - 1) << p.Start
}

// Same reports whether two partitions are the same place, so that one instance serves
// both. Their names do not matter.
func (p Partition) Same(q Partition) bool {
	return p.Profile == q.Profile && p.Start == q.Start && p.Size == q.Size
}

// Overlaps reports whether two partitions need a common memory slice.
func (p Partition) Overlaps(q Partition) bool {
	return p.Slices()&q.Slices() != 0
}

// Share is what one container holds of one device.
type Share struct {
	Device DeviceID
	Mode   Mode
	Memory Bytes
	// Cores is the compute in percent; 0 is no guarantee and no limit.
	Cores Percent
	// Whole says the container has the device to itself, so nothing needs to be
	// enforced inside the container.
	Whole bool
	// Partition is set in mode mig only.
	Partition Partition
	// User is as whom the container runs, on a device that serves one user at a time.
	User User
}

// ContainerShares is what one container holds.
type ContainerShares struct {
	Container string
	Kind      ContainerKind
	Shares    []Share
}

// Placement is the decision for one pod on one node: a plain value. Containers
// that asked for nothing are not in it.
type Placement struct {
	Node       string
	Containers []ContainerShares
	// Group is the pod group the pod wanted spread over devices, if it did.
	Group string
	// Namespace is the pod's, and Neighbours what counts between it and others. They are no part of
	// the text of a placement: whoever reads that has the pod. "" and nil are not known.
	Namespace  string
	Neighbours *Neighbours
	// GeometryHash is the geometry configuration the partitions were chosen
	// under; a node that applied another one must refuse them.
	GeometryHash string
}

// Container returns the shares of the named container.
func (p *Placement) Container(name string) (*ContainerShares, bool) {
	for i := range p.Containers {
		if p.Containers[i].Container == name {
			return &p.Containers[i], true
		}
	}
	return nil, false
}

// Meets reports whether two pods hold shares of one device.
func (p *Placement) Meets(q *Placement) bool {
	for i := range p.Containers {
		for j := range p.Containers[i].Shares {
			if q.Uses(p.Containers[i].Shares[j].Device) {
				return true
			}
		}
	}
	return false
}

// Uses reports whether any container of the pod holds a share of the device.
func (p *Placement) Uses(id DeviceID) bool {
	for i := range p.Containers {
		for j := range p.Containers[i].Shares {
			if p.Containers[i].Shares[j].Device == id {
				return true
			}
		}
	}
	return false
}
