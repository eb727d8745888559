// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"deviceshare/sharing"
	"deviceshare/sharing/mps"
)

// deviceFromFacts translates the driver's facts and the administrator's offer into the
// published device, without its health.
func deviceFromFacts(f *Facts, o Offer) sharing.Device {
	if o.Mode == sharing.MIG {
		o.MemoryScaling, o.CoreScaling = 1, 1 // hardware gives a partition what it has
	}
	d := sharing.Device{
		ID: f.UUID, Index: f.Index, Model: f.Model,
		Memory:    scaledMemory(f.Memory, o.MemoryScaling),
		Cores:     scaledCores(o.CoreScaling),
		MaxShares: max(o.MaxShares, 1),
		Mode:      o.Mode,
		Virtual:   f.Virtual,
		NUMA:      f.NUMA, PCI: f.PCI, Links: f.Links,
		MIG:        offeredPartitioning(f, o),
		MaxClients: mpsClientLimit(f, o),
	}
	if there := scaledMemory(f.Memory, 1); there != d.Memory {
		d.Physical = there
	}
	return d
}

// NUMA is the NUMA node that every device of the machine is at, hidden ones too, and -1 if there
// is no such node. Where it is known, it says where the CPUs of a pod should be, whichever devices
// the pod gets.
func (s State) NUMA() int {
	numa := -1
	for i := range s.devices {
		at := s.devices[i].facts.NUMA
		if i > 0 && at != numa {
			return -1
		}
		numa = max(at, -1)
	}
	return numa
}

// mpsClientLimit is how many clients the device's MPS server serves, 0 in other modes.
func mpsClientLimit(f *Facts, o Offer) int {
	if o.Mode != sharing.MPS {
		return 0
	}
	most := mps.MaxClients(f.Compute, f.CUDA)
	if o.MaxClients > 0 {
		most = min(most, o.MaxClients)
	}
	return most
}

// offeredPartitioning is nil for a device that cannot be partitioned.
func offeredPartitioning(f *Facts, o Offer) *sharing.Partitioning {
	if !f.MIG.Capable || len(f.MIG.Profiles) == 0 {
		return nil
	}
	return &sharing.Partitioning{
		Slices: f.MIG.Slices, Profiles: slices.Clone(f.MIG.Profiles), Geometries: o.Geometries, Policy: o.Policy,
	}
}

// offeredLinks returns the links that lead to offered devices. It does not change
// the driver's list.
func offeredLinks(links []sharing.Link, inv *sharing.Inventory) []sharing.Link {
	return slices.DeleteFunc(slices.Clone(links), func(l sharing.Link) bool {
		_, ok := inv.Device(l.Peer)
		return !ok
	})
}

// sanitizeReason makes a reason fit for an annotation: one line of bounded length.
func sanitizeReason(why string) string {
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

// scaledMemory is a multiple of the memory in whole MiB, the unit in which it is
// given out. A factor that is no number, or not above zero, counts as 1.
func scaledMemory(b sharing.Bytes, factor float64) sharing.Bytes {
	if !(factor > 0) || math.IsInf(factor, 0) {
		factor = 1
	}
	const beyondAll = 1 << 62 // in MiB, and still an int64
	return sharing.MiBs(int64(min(float64(b/sharing.MiB)*factor, beyondAll)))
}

// scaledCores is 100 percent times the factor, rounded to whole percent, and at least 1: no
// compute at all would mean no limit.
func scaledCores(factor float64) sharing.Percent {
	if !(factor > 0) || factor > 1000 {
		return 100
	}
	return sharing.Percent(max(math.Round(100*factor), 1))
}

// ByPCI returns positions of devices in PCI order, the order of CUDA.
func ByPCI(devices []sharing.Device) []int {
	order := make([]int, len(devices))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return ComparePCI(devices[a].PCI, devices[a].Index, devices[b].PCI, devices[b].Index)
	})
	return order
}

// ComparePCI orders by bus id, then index. Bus ids have a fixed width, so that
// their text order is their bus order.
func ComparePCI(pciA string, indexA int, pciB string, indexB int) int {
	return cmp.Or(cmp.Compare(pciA, pciB), cmp.Compare(indexA, indexB))
}
