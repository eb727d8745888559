// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"slices"
	"strings"
)

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
	// own is how many partitions of the pod being placed the usage counts that are
	// not in held.
	own int
	// again are the memory slices that only init containers of the pod being placed
	// have, see Free.
	again uint64
}

// NewView makes a view from the shares on a device. Shares of one owner must be
// neighbours; the ledger keeps them so.
func NewView(d *Device, held []Held) View {
	return View{Device: d, held: held, usage: used(held, d)}
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

// Empty reports that nothing of the device is in use while the next container
// runs.
func (v *View) Empty() bool { return v.usage.sharers == 0 && !v.blocked }

// Occupied reports whether a partition in use overlaps p.
func (v *View) Occupied(p Partition) bool { return v.usage.slices&p.Slices() != 0 }

// Slices returns the memory slices that partitions in use cover, bit i for slice i,
// those that init containers of pods had among them.
func (v *View) Slices() uint64 { return v.usage.slices }

// Free reports whether the next container may have the partition of the profile at
// this position that begins at start and covers these slices: nobody has any of
// them, or an earlier init container of the same pod has exactly this partition.
// The containers of a pod are prepared together, whichever of them starts, so what
// a pod holds never overlaps in itself.
func (v *View) Free(profile, start int, slices uint64) bool {
	taken := v.usage.slices & slices
	return taken == 0 || taken == slices && taken&^v.again == 0 &&
		profile < Uncommon-1 && start < len(v.usage.cuts) && v.usage.cuts[start] == uint8(profile)+1
}

// Cuts returns the partitions that must keep their place: those in use, and those
// that init containers of pods on the device had, since they may run again. Each
// is told by its place; the geometry it was named after may be another than those
// the device has now. The caller must not change it. It is not ok when a share is
// on the device whose place nobody knows: then nothing can be cut beside it.
func (v *View) Cuts() (cuts *Cuts, ok bool) { return &v.usage.cuts, !v.usage.adrift }

// Own returns how many partitions the usage counts that Held does not list: those
// of the pod being placed, see After.
func (v *View) Own() int { return v.own }

// After returns the view as the next container of the same pod sees it once the
// pod got s for an earlier container of this kind. An init container has ended
// by then and takes nothing, except that its partition is there beside the others
// for as long as the pod exists; a later container may have the same one, see Free.
// The receiver is unchanged and nothing is allocated, so that many placements can be
// tried; Held does not list s.
func (v *View) After(kind ContainerKind, s *Share) View {
	after := *v
	one := shareUsage(s, v.Device)
	if !s.Partition.IsZero() {
		after.own++
	}
	if kind == Init {
		after.again |= one.slices &^ v.usage.slices
		after.usage.slices |= one.slices
		after.usage.cuts.join(&one.cuts)
		after.usage.adrift = after.usage.adrift || one.adrift
		return after
	}
	after.again &^= one.slices
	after.usage = after.usage.plus(one)
	return after
}

// Alike reports whether two devices would treat every request of a pod that both
// admit the same. It may say false of devices that would.
func (v *View) Alike(w *View) bool {
	d, e := v.Device, w.Device
	if d.Mode != e.Mode || d.Memory != e.Memory || d.Cores != e.Cores || d.MaxShares != e.MaxShares || d.MaxClients != e.MaxClients ||
		v.usage != w.usage || v.again != w.again {
		return false
	}
	if d.Mode == MIG && (len(v.held) > 0 || len(w.held) > 0) {
		return false
	}
	return d.MIG == e.MIG || d.MIG != nil && e.MIG != nil && d.MIG.equal(e.MIG)
}

// Offered reports whether the pod may use the device at all, whatever is on it:
// it works, is in a mode the pod accepts, and passes the pod's selector.
func (v *View) Offered(pod *PodRequest) bool {
	return v.Device.Healthy && accepts(pod.Modes, v.Device.Mode) && pod.Selector.Accepts(v.Device)
}

// Admit makes the checks every mode has in common: health, selectors, sharers,
// exclusive holders, groups. It returns Fits or the first reason against.
func (v *View) Admit(pod *PodRequest) Reason {
	switch d := v.Device; {
	case !d.Healthy && !d.Changing:
		return Unhealthy
	case !accepts(pod.Modes, d.Mode):
		return WrongMode
	case d.Changing:
		return ChangingMode
	case d.Mode == MIG && (d.MIG == nil || len(d.MIG.Profiles) == 0):
		return PartitionsUnknown
	case !pod.Selector.empty() && !pod.Selector.matches(d):
		return NotSelected
	case !v.open():
		return v.closed()
	case pod.Group != "" && v.holdsGroup(pod.Group, pod.Owner):
		return GroupAlreadyHere
	}
	return Fits
}

// open reports whether the device takes any more shares.
func (v *View) open() bool {
	u := &v.usage
	return !v.blocked && !u.whole && !u.foreign && (!u.exclusive || v.Device.Mode == MIG) && u.sharers < v.Device.MaxShares
}

// closed is why the device takes no more shares.
func (v *View) closed() Reason {
	switch {
	case v.blocked:
		return Blocked
	case v.usage.sharers >= v.Device.MaxShares && !v.usage.whole && !v.usage.foreign && !v.usage.exclusive:
		return TooManyShares
	}
	return HeldExclusively
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
	return len(modes) == 0 || slices.Contains(modes, m)
}

// Accepts reports whether the selector lets a device through. Models match by
// substring ignoring case, as users of today's annotations expect; UUIDs match
// exactly.
func (s *Selector) Accepts(d *Device) bool {
	return s.empty() || s.matches(d)
}

func (s *Selector) empty() bool {
	return len(s.UseModels)+len(s.NotModels)+len(s.UseIDs)+len(s.NotIDs) == 0
}

func (s *Selector) matches(d *Device) bool {
	return (len(s.UseModels) == 0 || containsModel(d.Model, s.UseModels)) &&
		!containsModel(d.Model, s.NotModels) &&
		(len(s.UseIDs) == 0 || slices.Contains(s.UseIDs, d.ID)) &&
		!slices.Contains(s.NotIDs, d.ID)
}

// containsModel reports whether the model contains one of the parts, ignoring
// case. It allocates nothing, unlike comparing in lower case would.
func containsModel(model string, parts []string) bool {
	for _, part := range parts {
		for i := 0; i+len(part) <= len(model); i++ {
			if strings.EqualFold(model[i:i+len(part)], part) {
				return true
			}
		}
	}
	return false
}
