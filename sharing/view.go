// SPDX-License-Identifier: Apache-2.0

package sharing

import "strings"

// Held is one share with who holds it.
type Held struct {
	Owner     Owner
	Group     string
	Container string
	Kind      ContainerKind
	Share     Share
}

// View is a device together with the shares on it. What is used is computed
// from the shares once, when the view is made. A view is read only: methods that
// would change it return a new one.
type View struct {
	Device *Device
	held   []Held // shares of one owner are neighbours
	usage  usage
	// blocked: an owner whose shares cannot be read is on this node.
	blocked bool
}

// usage is what the shares on a device take together.
type usage struct {
	memory  Bytes
	cores   Percent
	sharers int
	// whole: some owner has the device, exclusive: some owner has its compute.
	whole, exclusive bool
}

// NewView makes a view from the shares on a device. Shares of one owner must be
// neighbours; the ledger keeps them so.
func NewView(d *Device, held []Held) View {
	return View{Device: d, held: held, usage: used(held)}
}

// Held returns the shares on the device. The caller must not change it.
func (v *View) Held() []Held { return v.held }

// UsedMemory and UsedCores are what the shares take, counting containers of one
// pod that never run at the same time once.
func (v *View) UsedMemory() Bytes { return v.usage.memory }

// UsedCores is the compute the shares take. A share with all the device's
// compute counts as 100.
func (v *View) UsedCores() Percent { return v.usage.cores }

// Sharers is the number of shares that run at the same time.
func (v *View) Sharers() int { return v.usage.sharers }

// FreeMemory is what is left to give, never below zero.
func (v *View) FreeMemory() Bytes { return v.Device.Memory.Less(v.usage.memory) }

// FreeCores is the compute left to give, never below zero.
func (v *View) FreeCores() Percent { return max(0, v.Device.Cores-v.usage.cores) }

// Empty reports that nobody holds anything of the device.
func (v *View) Empty() bool { return len(v.held) == 0 && !v.blocked }

// Occupied reports whether a partition in use overlaps p.
func (v *View) Occupied(p Partition) bool {
	for i := range v.held {
		q := v.held[i].Share.Partition
		if !q.IsZero() && q.Overlaps(p) {
			return true
		}
	}
	return false
}

// With returns the view with one more share. The receiver is unchanged.
func (v *View) With(h Held) View {
	held := make([]Held, len(v.held), len(v.held)+1)
	copy(held, v.held)
	w := NewView(v.Device, insert(held, h))
	w.blocked = v.blocked
	return w
}

// Admit makes the checks every mode has in common: health, selectors, sharers,
// exclusive holders, groups. It returns Fits or the first reason against.
func (v *View) Admit(pod *PodRequest, req *Request) Reason {
	d := v.Device
	switch {
	case !d.Healthy:
		return Unhealthy
	case !accepts(pod.Modes, d.Mode):
		return WrongMode
	case !pod.Selector.Accepts(d):
		return NotSelected
	case v.blocked:
		return Blocked
	case v.usage.whole, v.usage.exclusive && d.Mode != MIG:
		return HeldExclusively
	case v.usage.sharers >= d.MaxShares:
		return TooManyShares
	case pod.Group != "" && v.holdsGroup(pod.Group, pod.Owner):
		return GroupAlreadyHere
	}
	return Fits
}

// holdsGroup reports whether another pod of the group is on the device.
func (v *View) holdsGroup(group string, self Owner) bool {
	for i := range v.held {
		if v.held[i].Group == group && v.held[i].Owner != self {
			return true
		}
	}
	return false
}

func accepts(modes []Mode, m Mode) bool {
	for _, x := range modes {
		if x == m {
			return true
		}
	}
	return len(modes) == 0
}

// Accepts reports whether the selector lets a device through. Models match by
// substring ignoring case, as users of today's annotations expect; UUIDs match
// exactly.
func (s *Selector) Accepts(d *Device) bool {
	if len(s.UseModels)+len(s.NotModels)+len(s.UseIDs)+len(s.NotIDs) == 0 {
		return true
	}
	model := strings.ToLower(d.Model)
	return (len(s.UseModels) == 0 || containsModel(s.UseModels, model)) &&
		!containsModel(s.NotModels, model) &&
		(len(s.UseIDs) == 0 || containsID(s.UseIDs, d.ID)) &&
		!containsID(s.NotIDs, d.ID)
}

func containsModel(list []string, lower string) bool {
	for _, m := range list {
		if strings.Contains(lower, strings.ToLower(m)) {
			return true
		}
	}
	return false
}

func containsID(list []DeviceID, id DeviceID) bool {
	for _, x := range list {
		if x == id {
			return true
		}
	}
	return false
}

// insert puts a share beside the others of its owner, at the end of them.
func insert(held []Held, h Held) []Held {
	at := len(held)
	for i := len(held) - 1; i >= 0; i-- {
		if held[i].Owner == h.Owner {
			at = i + 1
			break
		}
	}
	held = append(held, Held{})
	copy(held[at+1:], held[at:])
	held[at] = h
	return held
}

// used adds up the shares, owner by owner.
func used(held []Held) usage {
	var u usage
	for from := 0; from < len(held); {
		to := from + 1
		for to < len(held) && held[to].Owner == held[from].Owner {
			to++
		}
		o := usedByOne(held[from:to])
		u.memory = u.memory.Plus(o.memory)
		u.cores += o.cores
		u.sharers += o.sharers
		u.whole = u.whole || o.whole
		u.exclusive = u.exclusive || o.exclusive
		from = to
	}
	return u
}

// usedByOne is what one pod takes of a device at any one time: the larger of
// what runs for its whole life and what any one init container needs beside the
// sidecars that started before it. This is the rule Kubernetes applies to every
// resource.
func usedByOne(held []Held) usage {
	var steady, peak usage
	for i := range held {
		s := &held[i].Share
		one := usage{memory: s.Memory, cores: s.Cores, sharers: 1}
		if held[i].Kind == Init {
			peak = larger(peak, steady.plus(one))
		} else {
			steady = steady.plus(one)
		}
		steady.whole = steady.whole || s.Whole
		steady.exclusive = steady.exclusive || s.Cores >= 100
	}
	u := larger(peak, steady)
	u.whole, u.exclusive = steady.whole, steady.exclusive
	return u
}

func (u usage) plus(v usage) usage {
	u.memory = u.memory.Plus(v.memory)
	u.cores += v.cores
	u.sharers += v.sharers
	return u
}

func larger(a, b usage) usage {
	return usage{memory: max(a.memory, b.memory), cores: max(a.cores, b.cores), sharers: max(a.sharers, b.sharers)}
}
