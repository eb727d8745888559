// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"

	"deviceshare/sharing"
)

// Kinds are the devices of a cluster or of a node, those of a kind once: what a request that
// depends on the device may come to.
type Kinds []sharing.Device

// KindsOf returns the kinds of the devices in inventories.
func KindsOf(inventories ...*sharing.Inventory) Kinds {
	var kinds Kinds
	for _, inv := range inventories {
		for i := range inv.Devices {
			d := &inv.Devices[i]
			if !slices.ContainsFunc(kinds, func(k sharing.Device) bool { return sameKind(&k, d) }) {
				kinds = append(kinds, *d)
			}
		}
	}
	return kinds
}

// sameKind reports whether every request comes to the same on two devices.
func sameKind(a, b *sharing.Device) bool {
	if a.Model != b.Model || a.Memory != b.Memory || a.Physical != b.Physical || a.Cores != b.Cores || a.Mode != b.Mode {
		return false
	}
	return a.Mode != sharing.MIG || a.MIG == b.MIG || a.MIG != nil && b.MIG != nil && sameCuts(a.MIG, b.MIG)
}

// sameCuts reports whether two devices are cut into partitions of the same amounts.
func sameCuts(a, b *sharing.Partitioning) bool {
	profile := func(p, q sharing.Profile) bool { return p.Name == q.Name && p.Memory == q.Memory && p.Size == q.Size }
	geometry := func(g, h sharing.Geometry) bool { return slices.Equal(g.Entries, h.Entries) }
	return a.Slices == b.Slices && slices.EqualFunc(a.Profiles, b.Profiles, profile) && slices.EqualFunc(a.Geometries, b.Geometries, geometry)
}

// maxCount bounds how many devices one container counts for.
const maxCount = 1 << 12

// Asked returns the least that a pod takes, whichever devices of these kinds it gets: a lower
// bound of Held for every placement of the pod on them.
func Asked(pod *sharing.PodRequest, kinds Kinds) Amounts {
	admitted := admittedBy(pod, kinds)
	var steady, most Part
	for i := range pod.Requests {
		r := &pod.Requests[i]
		count := int64(min(max(r.Count, 0), maxCount))
		one := Part{Memory: min(count*leastMemory(r, admitted), maxMemory), Cores: min(count*leastCores(r, admitted), maxCores), Number: count}
		if r.Kind == sharing.Init {
			most = most.max(steady.plus(one))
		} else {
			steady = steady.plus(one)
		}
	}
	sum := most.max(steady)
	if pod.Neighbours.IsAlone() {
		sum = sum.max(leastAlone(pod, admitted))
	}
	sum.Model = onlyModel(admitted)
	return Amounts{sum}.clampParts()
}

// leastAlone is the least that the devices of a pod have that accepts no other beside it: as many
// as one of its containers needs, since the others may share them.
func leastAlone(pod *sharing.PodRequest, kinds Kinds) Part {
	count, memory := int64(0), int64(0)
	for i := range pod.Requests {
		count = max(count, int64(min(pod.Requests[i].Count, maxCount)))
	}
	for i := range kinds {
		if m := min(int64(kinds[i].Memory), maxMemory); i == 0 || m < memory {
			memory = m
		}
	}
	return Part{Memory: min(count*memory, maxMemory), Cores: min(count*wholeCores, maxCores)}
}

func (p Part) plus(q Part) Part {
	return Part{Memory: p.Memory + q.Memory, Cores: p.Cores + q.Cores, Number: p.Number + q.Number}
}

func (p Part) max(q Part) Part {
	return Part{Model: p.Model, Memory: max(p.Memory, q.Memory), Cores: max(p.Cores, q.Cores), Number: max(p.Number, q.Number)}
}

// admittedBy returns the kinds that the pod's lists of models and modes leave.
func admittedBy(pod *sharing.PodRequest, kinds Kinds) Kinds {
	models := sharing.Selector{UseModels: pod.Selector.UseModels, NotModels: pod.Selector.NotModels}
	var admitted Kinds
	for i := range kinds {
		if k := &kinds[i]; models.Accepts(k) && (len(pod.Modes) == 0 || slices.Contains(pod.Modes, k.Mode)) {
			admitted = append(admitted, *k)
		}
	}
	return admitted
}

// onlyModel returns the model of all kinds, "" if there are several or none.
func onlyModel(kinds Kinds) string {
	if len(kinds) == 0 || slices.ContainsFunc(kinds, func(k sharing.Device) bool { return k.Model != kinds[0].Model }) {
		return ""
	}
	return kinds[0].Model
}

// leastMemory is the least that one device of a request comes to.
func leastMemory(r *sharing.Request, kinds Kinds) int64 {
	least, _ := r.Memory.Absolute() // 0 if it is not known before there is a device
	for i := range kinds {
		if m := memoryOn(r, &kinds[i]); i == 0 || m < least {
			least = m
		}
	}
	return min(int64(least), maxMemory)
}

// memoryOn is the least memory that a request gets on a device. A partition has its own, which may
// be less than the amount that was asked for, or than the same part of the device's memory.
func memoryOn(r *sharing.Request, d *sharing.Device) sharing.Bytes {
	least := r.Memory.On(d.Memory)
	if d.Mode != sharing.MIG || d.MIG == nil {
		return least
	}
	for i := range d.MIG.Profiles {
		if p := &d.MIG.Profiles[i]; isEnough(r, p, d.MIG) {
			least = min(least, p.Memory)
		}
	}
	return least
}

// isEnough reports whether partitions of a profile may serve a request for memory.
func isEnough(r *sharing.Request, p *sharing.Profile, all *sharing.Partitioning) bool {
	if asked, ok := r.Memory.Absolute(); ok {
		return all.Nominal(p) >= asked
	}
	if percent, isPart := r.Memory.Percent(); isPart && !r.Memory.Whole() {
		return p.Size*100 >= int(percent)*all.Slices
	}
	for i := range all.Profiles {
		if all.Profiles[i].Memory > p.Memory {
			return false
		}
	}
	return true
}

// leastCores is the least compute that one device of a request comes to. All memory of a device
// is all of its compute that is offered.
func leastCores(r *sharing.Request, kinds Kinds) int64 {
	if !r.Memory.Whole() || r.Cores != 0 {
		return int64(max(r.Cores, 0))
	}
	least := sharing.Percent(100)
	for i := range kinds {
		least = min(least, kinds[i].Cores)
	}
	return int64(max(least, 0))
}
