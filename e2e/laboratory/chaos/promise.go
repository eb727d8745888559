// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"maps"
	"slices"
)

// Pod is what the API server says of a pod that asks for devices.
type Pod struct {
	UID, Name string // Name has the namespace in front
	// Holds: it is bound to the node and has not ended, so that what it was given is its own.
	Holds bool
	// Initialized: its init containers have ended, and what only they were given is free.
	Initialized bool
	Containers  []Container
}

// Container is one container of a pod, in the order in which they start.
type Container struct {
	Name string
	// IDs are those of the runtime, of all its lives that were seen.
	IDs    []string
	Kind   Kind
	Shares []Share
}

// Kind says when a container runs.
type Kind string

// The kinds, as the placement annotation spells them.
const (
	App     Kind = "app"
	Init    Kind = "init"
	Sidecar Kind = "sidecar"
)

// Share is what a container was given of one device.
type Share struct {
	Device, Mode string
	Memory       int64 // bytes
	Cores        int   // percent
	Whole        bool
	// Profile, Start and Size say which partition it is, in memory slices; Profile is empty for
	// none.
	Profile     string
	Start, Size int
}

// Offer is what the node offers of one device.
type Offer struct {
	Memory int64 // bytes
	Cores  int   // percent
	Shares int   // containers at a time
}

// Process is a program that uses a device, as the driver sees it.
type Process struct {
	PID int
	// Pod is its pod's UID, Container its container's ID.
	Pod, Container string
	Device         string
	// Profile and Start say in which partition it works; Profile is empty for none.
	Profile string
	Start   int
	Memory  int64 // bytes of the device
}

// Partition is a partition that the driver has.
type Partition struct {
	Device, Profile string
	Start           int
}

// Scene is everything at one moment.
type Scene struct {
	// Pods by UID. Pods that were deleted stay: their processes may outlive them for a moment.
	Pods map[string]Pod
	// Offers by device.
	Offers     map[string]Offer
	Processes  []Process
	Partitions []Partition
	// Alive are the IDs of containers that had a process before and after the driver was asked.
	Alive map[string]bool
	// Ledger is nil if no scheduler answered.
	Ledger Ledger
	// Standings by UID, also of pods that were deleted.
	Standings map[string]Standing
}

// Violation is a promise that was broken.
type Violation struct {
	// Promise is the check's name: shares, memory, partitions, ledger, evictions, pods, residents
	// or nothing left.
	Promise string
	Text    string
}

func (v Violation) String() string { return v.Promise + ": " + v.Text }

// Violations lists what of a scene breaks a promise, in a fixed order.
func Violations(s Scene) []Violation {
	return slices.Concat(sharesGivenTwice(s), memoryBeyondLimits(s), partitionsOfTwo(s), partitionsGone(s), ledgerContradicts(s),
		wrongEvictions(s))
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
