// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"deviceshare/sharing"
	"deviceshare/sharing/mps"
)

// Settings is what the administrator decided, as plain answers.
type Settings struct {
	// Hold is why nothing may be concluded from these settings, "" if it may: they
	// are not what the administrator wrote. No device takes pods or is changed then.
	Hold string
	// Device says how one device is offered.
	Device func(f *Found) Offer
	// Geometries are the groups allowed for a model, in order.
	Geometries func(model string) []sharing.Geometry
	// Policy is how partitions are chosen on a model; nil is sharing.FirstMatch.
	Policy func(model string) sharing.PartitionPolicy
	// GeometryHash identifies the geometry configuration.
	GeometryHash string
	// Serves reports whether this node can prepare containers in a mode. Nil
	// means any.
	Serves func(sharing.Mode) bool
	// Switches reports whether somebody brings devices into a mode and out of it,
	// and tells the board how far they are; see Board.SetStanding. Nil means that
	// nobody does: then devices are taken to be in the mode they are given.
	Switches func(sharing.Mode) bool
}

// Offer is how one device is offered.
type Offer struct {
	Hidden        bool // not ours: never published
	Mode          sharing.Mode
	Given         bool    // somebody gave it this mode, it is not the default
	MemoryScaling float64 // 1 offers the physical memory
	CoreScaling   float64 // 1 offers 100 percent
	MaxShares     int
	// MaxClients lowers how many clients an MPS server is taken to serve; 0 keeps it.
	MaxClients int
}

// Inventory builds the node's inventory in ascending index order. broken says why
// a device that is offered gets no pods, "" if it does.
func Inventory(node string, found []Found, broken func(*Found, Offer) string, s Settings) sharing.Inventory {
	inv := sharing.Inventory{Node: node, GeometryHash: s.GeometryHash}
	for i := range found {
		f := &found[i]
		offer := s.Device(f)
		if offer.Hidden {
			continue
		}
		why := legible(broken(f, offer))
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: f.UUID, Index: f.Index, Model: f.Model,
			Memory:    scaledMemory(f.Memory, offer.MemoryScaling),
			Cores:     scaledCores(offer.CoreScaling),
			MaxShares: max(offer.MaxShares, 1),
			Healthy:   why == "",
			Reason:    why,
			Mode:      offer.Mode,
			NUMA:      f.NUMA, PCI: f.PCI, Links: slices.Clone(f.Links),
			MIG:        partitioning(f, &s),
			MaxClients: clients(f, offer),
		})
	}
	slices.SortFunc(inv.Devices, func(a, b sharing.Device) int { return cmp.Compare(a.Index, b.Index) })
	for i := range inv.Devices {
		inv.Devices[i].Links = visibleLinks(inv.Devices[i].Links, &inv)
	}
	return inv
}

// Unfit says why a device that works cannot be used in its mode, "" if it can. It
// is then published as broken: a pod that was given it could not start.
func Unfit(f *Found, mode sharing.Mode, s Settings) string {
	switched := s.Switches != nil && s.Switches(sharing.MIG)
	switch {
	case s.Serves != nil && !s.Serves(mode):
		return fmt.Sprintf("this node cannot prepare containers in mode %s", mode)
	case mode == sharing.MIG && !f.MIG.Capable:
		return "its mode is mig and it cannot be partitioned: give it another mode in the node configuration"
	case mode == sharing.MPS && f.Compute > 0 && f.Compute < 7:
		return "its mode is mps and it is older than Volta, where MPS holds no client to a limit: give it another mode in the node configuration"
	case mode != sharing.MIG && f.MIG.Enabled && !switched:
		return fmt.Sprintf("partitioning (MIG) is switched on and its mode is %s: switch it off with nvidia-smi -mig 0, or give it mode mig", mode)
	}
	return ""
}

// clients is how many clients the device's MPS server serves, 0 in other modes.
func clients(f *Found, o Offer) int {
	if o.Mode != sharing.MPS {
		return 0
	}
	most := mps.MaxClients(f.Compute, f.CUDA)
	if o.MaxClients > 0 {
		most = min(most, o.MaxClients)
	}
	return most
}

// legible makes a reason fit for an annotation: one line of bounded length.
func legible(why string) string {
	const most = 300
	why = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(why, "?"))
	if len(why) > most {
		why = strings.ToValidUTF8(why[:most], "") + " ..."
	}
	return why
}

// visibleLinks drops links to devices that are not offered.
func visibleLinks(links []sharing.Link, inv *sharing.Inventory) []sharing.Link {
	return slices.DeleteFunc(links, func(l sharing.Link) bool {
		_, ok := inv.Device(l.Peer)
		return !ok
	})
}

// partitioning is nil for a device that cannot be cut.
func partitioning(f *Found, s *Settings) *sharing.Partitioning {
	if !f.MIG.Capable || len(f.MIG.Profiles) == 0 {
		return nil
	}
	p := &sharing.Partitioning{Slices: f.MIG.Slices, Profiles: slices.Clone(f.MIG.Profiles)}
	if s.Geometries != nil {
		p.Geometries = s.Geometries(f.Model)
	}
	if s.Policy != nil {
		p.Policy = s.Policy(f.Model)
	}
	return p
}

// scaledMemory is a multiple of the memory in whole MiB, the unit in which it is
// given out. A factor that is no number, or not above zero, counts as 1.
func scaledMemory(b sharing.Bytes, factor float64) sharing.Bytes {
	whole := int64(b / sharing.MiB)
	if !(factor > 0) || factor == 1 || math.IsInf(factor, 0) {
		return sharing.MiBs(whole)
	}
	scaled := float64(whole) * factor
	if scaled >= math.MaxInt64/float64(sharing.MiB) {
		return sharing.MaxBytes
	}
	return sharing.MiBs(int64(scaled))
}

// scaledCores is 100 percent times the factor, rounded to whole percent.
func scaledCores(factor float64) sharing.Percent {
	if !(factor > 0) || factor > 1000 {
		return 100
	}
	return sharing.Percent(math.Round(100 * factor))
}

// ByPCI returns positions of devices in PCI order, the order of CUDA.
func ByPCI(devices []sharing.Device) []int {
	order := make([]int, len(devices))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return byPCI(devices[a].PCI, devices[a].Index, devices[b].PCI, devices[b].Index)
	})
	return order
}
