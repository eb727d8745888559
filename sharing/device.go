// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
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
	// MaxClients bounds, in mode mps, how many clients its server takes at once; 0
	// when its node does not say.
	MaxClients int
	Healthy    bool
	// Reason is why the device is not healthy, for people; "" when it is, or when
	// its node does not say.
	Reason string
	// Changing says that the device works, is not healthy because it is on the way
	// into its mode, and will be once nobody holds it in another one.
	Changing bool
	Mode     Mode
	NUMA     int    // NUMA node, -1 when unknown
	PCI      string // PCI bus id, "" when unknown
	Links    []Link
	// MIG describes the partitions the device can be cut into. It is nil for a
	// device that cannot be partitioned.
	MIG *Partitioning
}

// Link says that this device reaches another one directly.
type Link struct {
	Peer DeviceID
	Kind string // "nvlink", "pix", "pxb", "phb", "node", "sys"
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
