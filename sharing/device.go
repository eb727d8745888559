// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"cmp"
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

// Modes returns every mode of this repository in documented order: the order in
// which equal scores are decided, strongest isolation first.
func Modes() []Mode { return []Mode{MIG, HAMiCore, MPS, TimeSlicing} }

// ParseMode reads one mode exactly: one of Modes, or the mode of a backend that is
// not part of this repository, which has a domain in front of its name as Kubernetes
// resources have: "example.com/halves". Whether anything here serves such a mode is
// known to the lists of backends only. Case and spaces are not forgiven: a mode that
// is not understood must never become another one.
func ParseMode(s string) (Mode, error) {
	names := make([]string, 0, len(Modes()))
	for _, m := range Modes() {
		if s == string(m) {
			return m, nil
		}
		names = append(names, string(m))
	}
	if hasDomain(s) {
		return Mode(s), nil
	}
	return "", fmt.Errorf("unknown mode %q: want one of %s", s, strings.Join(names, ", "))
}

// hasDomain reports whether a mode is named like "example.com/halves".
func hasDomain(s string) bool {
	domain, name, _ := strings.Cut(s, "/")
	return len(s) <= 63 && strings.Contains(domain, ".") && isLabel(domain) && isLabel(name)
}

// isLabel reports whether s consists of lower case letters, digits, dots and dashes,
// and begins and ends with a letter or digit.
func isLabel(s string) bool {
	const edge = "abcdefghijklmnopqrstuvwxyz0123456789"
	return s != "" && strings.Trim(s, edge+".-") == "" &&
		strings.ContainsRune(edge, rune(s[0])) && strings.ContainsRune(edge, rune(s[len(s)-1]))
}

// DeviceID is the full UUID of a device. It is compared with ==, never by
// substring.
type DeviceID string

// Device is one GPU as its node published it: an immutable value.
type Device struct {
	ID    DeviceID
	Index int // the driver's index on its node; indexes of one node may be sparse
	Model string
	// Memory is what may be given out in all.
	Memory Bytes
	// Physical is the memory that is really there, where the administrator offers more or less of
	// it; else 0.
	Physical Bytes
	// Cores is the compute that may be given out in all: 100 unless scaled.
	Cores Percent
	// MaxShares bounds how many shares the device carries at once.
	MaxShares int
	// MaxClients bounds, in mode mps, how many clients its server takes at once; 0
	// when its node does not say.
	MaxClients int
	// OneUser says, in mode mps, that its server serves containers of one user at a time.
	OneUser bool
	// OneNamespace says, in mode mps, that the device serves pods of one namespace at a time, and
	// NoRoot that it serves no container that runs as root, or as a user that is not known.
	OneNamespace, NoRoot bool
	Healthy              bool
	// Reason is why the device is not healthy, for people; "" when it is, or when
	// its node does not say.
	Reason string
	// Changing says that the device works, is not healthy because it is on the way
	// into its mode, and will be once nobody holds it in another one.
	Changing bool
	// Cordon is how people keep new pods off the device, nil if they do not. Its node knows nothing
	// of it.
	Cordon *Cordon
	Mode   Mode
	NUMA   int    // NUMA node, -1 when unknown
	PCI    string // PCI bus id, "" when unknown
	Links  []Link
	// MIG describes the partitions the device can be cut into. It is nil for a
	// device that cannot be partitioned.
	MIG *Partitioning
	// Virtual says that the device is a vGPU: a part of a GPU that the host of a virtual machine
	// has given to it. Licence is what its driver says of its licence.
	Virtual bool
	Licence Licence
}

// IsInService reports whether the device works and nobody keeps new pods off it.
func (d *Device) IsInService() bool { return d.Healthy && d.Cordon == nil }

func (d *Device) physicalMemory() Bytes { return cmp.Or(d.Physical, d.Memory) }

// offersAll reports whether the administrator keeps nothing of the device back.
func (d *Device) offersAll() bool { return d.Memory >= d.physicalMemory() && d.Cores >= 100 }

// IsWhole reports whether a share of this memory and compute is all that is physically there, so
// that there is nothing to enforce. Compute of 0 has no limit.
func (d *Device) IsWhole(memory Bytes, cores Percent) bool {
	return memory >= d.physicalMemory() && (cores == 0 || cores >= 100)
}

// Link says how this device reaches another one, see Path.
type Link struct {
	Peer DeviceID
	Kind string // "nvlink", "pix", "pxb", "phb", "node", "sys"
	// Count is how many NVLinks lead there, through a switch or not; 0 when its node does
	// not say, or the link is none.
	Count int
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
