// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"slices"
	"strings"
)

// Mode is how a device is shared.
type Mode string

// The modes. The texts are wire format: users write them in the annotation
// volcano.sh/vgpu-mode and nodes publish them.
const (
	HAMiCore    Mode = "hami-core"
	MIG         Mode = "mig"
	MPS         Mode = "mps"
	TimeSlicing Mode = "time-slicing"
)

// Modes returns every mode in documented order: the order in which equal scores
// are decided, strongest isolation first.
func Modes() []Mode { return []Mode{MIG, HAMiCore, MPS, TimeSlicing} }

// ParseMode reads one mode exactly. Case and spaces are not forgiven: a mode
// that is not understood must never become another one.
func ParseMode(s string) (Mode, error) {
	for _, m := range Modes() {
		if s == string(m) {
			return m, nil
		}
	}
	names := make([]string, 0, len(Modes()))
	for _, m := range Modes() {
		names = append(names, string(m))
	}
	return "", fmt.Errorf("unknown mode %q: want one of %s", s, strings.Join(names, ", "))
}

// DeviceID is the full UUID of a device. It is compared with ==, never by
// substring.
type DeviceID string

// Device is one GPU as its node published it: an immutable value.
type Device struct {
	ID    DeviceID
	Index int // the driver's index on its node; indexes of one node may be sparse
	Model string
	// Memory is what may be given out in all. It differs from the physical
	// memory when the administrator scales it.
	Memory Bytes
	// Cores is the compute that may be given out in all: 100 unless scaled.
	Cores Percent
	// MaxShares bounds how many shares the device carries at once.
	MaxShares int
	Healthy   bool
	Mode      Mode
	NUMA      int    // NUMA node, -1 when unknown
	PCI       string // PCI bus id, "" when unknown
	Links     []Link
	// MIG describes the partitions the device can be cut into. It is nil for a
	// device that cannot be partitioned.
	MIG *Partitioning
}

// Link says that this device reaches another one directly.
type Link struct {
	Peer DeviceID
	Kind string // "nvlink", "pix", "pxb", "phb", "node", "sys"
}

// Partitioning is what a device allows in mode mig.
type Partitioning struct {
	// Slices is the number of memory slices: 8 on an A100, 4 on an A30.
	Slices int
	// Profiles are the shapes the driver offers, with where they may start.
	Profiles []Profile
	// Geometries are the groups the administrator allows, in order: the first
	// that satisfies a request is used. Empty means any legal layout of Profiles.
	Geometries []Geometry
}

// equal reports whether two devices allow the same partitions.
func (p *Partitioning) equal(q *Partitioning) bool {
	return p.Slices == q.Slices &&
		slices.EqualFunc(p.Profiles, q.Profiles, func(a, b Profile) bool {
			return a.Name == b.Name && a.Memory == b.Memory && a.Compute == b.Compute && a.Size == b.Size &&
				a.Max == b.Max && slices.Equal(a.Starts, b.Starts)
		}) &&
		slices.EqualFunc(p.Geometries, q.Geometries, func(a, b Geometry) bool {
			return a.Name == b.Name && slices.Equal(a.Entries, b.Entries)
		})
}

// Profile is a partition shape and its legal places, as the driver reports them.
type Profile struct {
	Name    string // "1g.10gb"
	Memory  Bytes
	Compute int   // compute slices: the 1 of 1g
	Size    int   // memory slices it covers
	Starts  []int // memory slices at which it may begin, ascending
	Max     int   // how many fit at most; 0 means as many as there are places
}

// Geometry is a named group of partitions that exist together on one device.
type Geometry struct {
	Name    string // must not contain '-', '[' or ']': it is part of a wire id
	Entries []GeometryEntry
}

// GeometryEntry is Count partitions of one profile.
type GeometryEntry struct {
	Profile string
	Memory  Bytes
	Count   int
}

// Inventory is the devices of one node in ascending index order.
type Inventory struct {
	Node    string
	Devices []Device
	// GeometryHash identifies the geometry configuration the node applied.
	GeometryHash string
}

// Device returns the device with this id.
func (inv *Inventory) Device(id DeviceID) (*Device, bool) {
	for i := range inv.Devices {
		if inv.Devices[i].ID == id {
			return &inv.Devices[i], true
		}
	}
	return nil, false
}
