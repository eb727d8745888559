// SPDX-License-Identifier: Apache-2.0

package node

import "deviceshare/sharing"

// Facts is what the driver says about one device. It does not change while the
// device works, except for MIG.Enabled.
type Facts struct {
	UUID   sharing.DeviceID
	Index  int // the driver's; indexes may have gaps
	Model  string
	Memory sharing.Bytes // physical
	Minor  int           // number of the device node
	PCI    string        // "0000:07:00.0"
	NUMA   int           // -1 when unknown
	// Compute is the major compute capability, and CUDA the version of CUDA the
	// driver serves, 1000 times major plus 10 times minor; 0 when unknown.
	Compute, CUDA int
	// Virtual says that the machine is virtual and its host has given it a part of a GPU (a vGPU).
	Virtual bool
	MIG     MIG
	Links   []sharing.Link
}

// MIG is what a device says about partitions.
type MIG struct {
	Capable  bool
	Enabled  bool // as of now
	Pending  bool // after the next reset
	Profiles []sharing.Profile
	// Slices is the number of memory slices, 0 when unknown.
	Slices int
}

// Offer is how the administrator wants one device to be offered.
type Offer struct {
	Hidden        bool // not ours: never published
	Mode          sharing.Mode
	Given         bool    // somebody gave it this mode, it is not the default
	MemoryScaling float64 // 1 offers the physical memory
	CoreScaling   float64 // 1 offers 100 percent
	MaxShares     int
	// MaxClients lowers how many clients an MPS server is taken to serve; 0 keeps it.
	MaxClients int
	// Geometries are the groups of partitions allowed on the device, in order.
	Geometries []sharing.Geometry
	// Policy is how a partition is chosen.
	Policy sharing.PartitionPolicy
}

// Offers answers how devices are offered, also those found later. Implementations
// are immutable: the same facts always get the same answer.
type Offers interface {
	Offer(f *Facts) Offer
}

// Settings is one version of what the administrator wrote.
type Settings struct {
	Offers Offers
	// GeometryHash identifies the geometry configuration.
	GeometryHash string
	// Unit is the MiB of a unit of memory; less than 1 counts as 1.
	Unit int64
}

// Powers is what this node can do. It is fixed while the plugin runs, but for modes that come to be
// served, see ModeServed.
type Powers struct {
	// Serves are the modes containers can be prepared in; nil means any.
	Serves []sharing.Mode
	// Unserved says of modes that are not in Serves why.
	Unserved map[sharing.Mode]string
	// Switches says that the agent brings devices into their modes. Without it
	// devices are taken to be in the mode they are given.
	Switches bool
	// MPS is which containers share a device in mode mps.
	MPS Tenants
	// Switched are the modes that are states of the device, in the order in which
	// they are left.
	Switched []sharing.Mode
}

// Tenants is which containers share a device: those of one user at a time, of one namespace at a
// time, none that may run as root.
type Tenants struct{ OneUser, OneNamespace, NoRoot bool }

// Moment is a point in time in nanoseconds, on any clock that never goes back.
type Moment int64

// HealthRules is when a critical error counts, and for how long.
type HealthRules struct {
	// Ignored are the numbers (XID) of errors that programs cause, not the device.
	Ignored []uint64
	// IgnoreAll: no error counts.
	IgnoreAll bool
	// Quiet is for how many nanoseconds no error may come before a device that
	// answers counts as working again.
	Quiet Moment
}
