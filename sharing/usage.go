// SPDX-License-Identifier: Apache-2.0

package sharing

// usage is what the shares on a device take together.
type usage struct {
	memory  Bytes
	cores   Percent
	sharers int
	marks   marks
	// users of containers that are no init containers: those have ended, or end soon.
	users tenants[User]
	// namespaces of all pods that have a share, whatever their containers do at the time.
	namespaces tenants[string]
}

// marks are what holds of some share on a device. Of most devices nothing does, which is one
// question then.
type marks uint8

const (
	// heldWhole: some owner has the device.
	heldWhole marks = 1 << iota
	// heldExclusive: some owner has its compute.
	heldExclusive
	// heldForeign: some share is of another mode than the device is in now, which happens when a
	// device changes its mode while pods run on it.
	heldForeign
	// heldSelective: some pod does not accept every other beside it.
	heldSelective
	// heldByName: it depends on labels or groups of others which of them.
	heldByName
)

func (m marks) has(some marks) bool { return m&some != 0 }

// markIf is a mark of which something decides whether it is there.
func markIf(m marks, is bool) marks {
	if is {
		return m
	}
	return 0
}

// maxCores bounds the compute that one share counts for, so that sums of amounts which
// others wrote into annotations cannot wrap.
const maxCores = 1 << 20

// sumUsage adds up the shares on a device, owner by owner.
func sumUsage(held []Held, d *Device) usage {
	var u usage
	for from := 0; from < len(held); {
		to := from + 1
		for to < len(held) && held[to].Owner == held[from].Owner {
			to++
		}
		u = u.plus(usedByOne(held[from:to], d))
		from = to
	}
	return u
}

// usedByOne is what one pod takes of a device at any one time: the larger of
// what runs for its whole life and what any one init container needs beside the
// sidecars that started before it. This is the rule Kubernetes applies to every
// resource.
func usedByOne(held []Held, d *Device) usage {
	var steady, peak, lasting usage
	for i := range held {
		one := shareUsage(&held[i].Share, d)
		if d.OneNamespace {
			one.namespaces = tenants[string]{some: true, one: held[i].Namespace}
		}
		if held[i].Kind == Init {
			peak = maxUsage(peak, steady.amountsOnly().plus(one.amountsOnly()))
		} else {
			steady = steady.plus(one.amountsOnly())
		}
		if held[i].Kind == Init {
			one.users = tenants[User]{}
		}
		one.marks |= markIf(heldSelective, held[i].Neighbours.IsSelective()) | markIf(heldByName, held[i].Neighbours.SelectsByName())
		lasting = lasting.plus(one)
	}
	u := maxUsage(peak, steady)
	lasting.memory, lasting.cores, lasting.sharers = u.memory, u.cores, u.sharers
	return lasting
}

// shareUsage is what one share takes of a device. Negative amounts can only come from
// annotations that others wrote. They count as nothing: they must never make room.
func shareUsage(s *Share, d *Device) usage {
	u := usage{
		memory:  max(s.Memory, 0),
		cores:   min(max(s.Cores, 0), maxCores),
		sharers: 1,
		marks:   markIf(heldWhole, s.Whole) | markIf(heldExclusive, s.Cores >= 100) | markIf(heldForeign, s.Mode != d.Mode),
	}
	if d.OneUser {
		u.users = tenants[User]{some: true, one: s.User}
	}
	return u
}

// amountsOnly is the part of the usage that ends when a container ends.
func (u usage) amountsOnly() usage {
	return usage{memory: u.memory, cores: u.cores, sharers: u.sharers}
}

// plus adds what runs at the same time.
func (u usage) plus(v usage) usage {
	u.memory = u.memory.Plus(v.memory)
	u.cores += v.cores
	u.sharers += v.sharers
	u.marks |= v.marks
	u.users = u.users.mergedWith(v.users)
	u.namespaces = u.namespaces.mergedWith(v.namespaces)
	return u
}

// maxUsage is the larger of each amount of two usages.
func maxUsage(a, b usage) usage {
	return usage{memory: max(a.memory, b.memory), cores: max(a.cores, b.cores), sharers: max(a.sharers, b.sharers)}
}
