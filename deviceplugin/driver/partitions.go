// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"

	"deviceshare/sharing"
)

// Partitions is what a driver can do about partitions. Every method that changes
// something does one thing. Implementations are safe for concurrent use on
// different devices.
type Partitions interface {
	// MIGMode says whether a device is partitioned now and after its next reset;
	// ErrUnsupported if it never can be.
	MIGMode(id sharing.DeviceID) (current, pending bool, err error)
	// Resetless reports whether the mode of a device changes without a reset, as from
	// Hopper on.
	Resetless(id sharing.DeviceID) (bool, error)
	// SetMIGMode switches partitioning on or off. nil means that it is so now.
	// ErrResetRequired means that it will be so after a reset, ErrInUse that it
	// cannot be so while the device is used; then too it may be so after a reset.
	SetMIGMode(id sharing.DeviceID, on bool) error
	// Instances lists every instance on a device, whoever made it; none while the
	// device is not partitioned.
	Instances(id sharing.DeviceID) ([]Instance, error)
	// CreateGPUInstance makes an instance at exactly this place, without a compute
	// instance; ErrInsufficient if the place is taken.
	CreateGPUInstance(id sharing.DeviceID, profile string, start int) (gi int, err error)
	// CreateComputeInstance makes the compute instance that spans an instance.
	CreateComputeInstance(id sharing.DeviceID, gi int) (ComputeInstance, error)
	// DestroyComputeInstance destroys one; ErrInUse while a process uses it.
	DestroyComputeInstance(id sharing.DeviceID, gi, ci int) error
	// DestroyGPUInstance destroys one; ErrInUse while it has compute instances.
	DestroyGPUInstance(id sharing.DeviceID, gi int) error
	// Processes are the ids of the processes that use an instance, as far as the
	// driver tells.
	Processes(id sharing.DeviceID, gi int) ([]int, error)
	// Clients are the processes that may stand in the way of a change of a device: those that
	// the driver lists on it or on its instances, and those that have it open, such as a
	// monitoring service. This process is left out.
	Clients(id sharing.DeviceID) ([]Client, error)
}

// Client is a process that uses a device or has it open.
type Client struct {
	PID  int
	Name string // of its program; empty if nobody knows
	// GI is the GPU instance that it uses; WholeDevice if it uses none, or none is known.
	GI int
}

// WholeDevice is the instance of a client that uses none.
const WholeDevice = -1

// String names the process as an administrator would look for it.
func (c Client) String() string {
	if c.Name == "" {
		return fmt.Sprintf("process %d", c.PID)
	}
	return fmt.Sprintf("%s (process %d)", c.Name, c.PID)
}

// Instance is a GPU instance that exists.
type Instance struct {
	Profile string // "3g.40gb"
	Start   int    // first memory slice
	Size    int    // memory slices
	GI      int    // the driver's number, unique on the device while it exists
	Compute []ComputeInstance
}

// ComputeInstance is a compute instance inside a GPU instance.
type ComputeInstance struct {
	CI   int    // the driver's number, unique inside the GPU instance
	UUID string // of the MIG device that containers see, "MIG-..."
	// Spans says that it has all the compute of its GPU instance.
	Spans bool
}

// Whole reports whether an instance has exactly the one compute instance that
// spans it: only then a container has all of it, and alone.
func (in *Instance) Whole() bool { return len(in.Compute) == 1 && in.Compute[0].Spans }

// Span is the instance's place.
func (in *Instance) Span() sharing.Partition {
	return sharing.Partition{Profile: in.Profile, Start: in.Start, Size: in.Size}
}

// String names the instance as an administrator would look for it.
func (in *Instance) String() string {
	return fmt.Sprintf("%s (GPU instance %d)", DescribePlace(in.Span()), in.GI)
}

// DescribePlace names a place as an administrator would look for it: "1g.10gb at
// slice 3".
func DescribePlace(p sharing.Partition) string {
	if p.Size == 1 {
		return fmt.Sprintf("%s at slice %d", p.Profile, p.Start)
	}
	return fmt.Sprintf("%s at slices %d to %d", p.Profile, p.Start, p.Start+p.Size-1)
}
