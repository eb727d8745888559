// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"slices"
	"strconv"

	"deviceshare/sharing"
)

// MaxSlots bounds how many slots a node offers: they travel in one message of the kubelet's
// protocol, of 4 MiB at most.
const MaxSlots = 60000

// Offered is what the kubelet is told that the node has.
//
// It is what the administrator wants to offer, and in addition what pods hold beyond that until
// they have ended. A kubelet that starts admits its pods again, against these amounts: with less it
// would fail pods that run, and any pod, not only those that the edit is about. With the larger of
// the two only, devices that have room would seem full.
//
// A device counts whether or not it works (docs/adr/0050-what-is-held-stays-offered.md).
func (s State) Offered() Amounts { return s.offered.amounts }

// Slots are the names of the slots to offer, in a stable order. The caller must not change them.
//
// No name has anything to do with a device: the kubelet picks slots without knowing what the
// scheduler picked. A slot that a pod holds is offered until the pod has ended, whatever its name.
// The rest are the first names of slot-0, slot-1 and so on. Slots of doubtful owners come before
// those: if such a pod is new, its slot stays.
func (s State) Slots() []string { return s.offered.slots }

// Overhangs returns what pods hold beyond what the node wants to offer, in the order of devices.
// The caller must not change them.
func (s State) Overhangs() []Overhang { return s.offered.overhangs }

// offered follows from settings, devices that are there, and holdings. It is worked out when one of
// those changes, and not with each probe of a device.
type offered struct {
	amounts   Amounts
	slots     []string
	overhangs []Overhang
}

func (s *State) countOffered() offered {
	inv := s.Inventory()
	o := offered{amounts: s.configuredAmounts(&inv), overhangs: s.countOverhangs(&inv)}
	for i := range o.overhangs {
		o.amounts = o.amounts.plus(o.overhangs[i].Beyond)
	}
	o.amounts = o.amounts.atLeast(s.holdings.totalAsked())
	o.slots = slotNames(int(min(o.amounts.Number, MaxSlots)), s.holdings.Slots, s.holdings.Doubtful)
	return o
}

// configuredAmounts is what the administrator wants to offer.
func (s *State) configuredAmounts(inv *sharing.Inventory) Amounts {
	var sum Amounts
	for i := range inv.Devices {
		sum = sum.plus(s.settings.amountsOf(&inv.Devices[i]))
	}
	return sum
}

// amountsOf is what one device offers. Units are rounded down per device.
func (s *Settings) amountsOf(d *sharing.Device) Amounts {
	return Amounts{Number: int64(d.MaxShares), Memory: int64(d.Memory/sharing.MiB) / s.mibPerUnit(), Cores: int64(d.Cores)}
}

func (s *Settings) mibPerUnit() int64 { return max(s.Unit, 1) }

// unitsOf is how many units memory takes, rounded up.
func (s *Settings) unitsOf(memory sharing.Bytes) int64 {
	mib := int64(memory / sharing.MiB)
	return mib/s.mibPerUnit() + min(mib%s.mibPerUnit(), 1)
}

func slotNames(total int, held, doubtful []string) []string {
	names := make(map[string]bool, max(total, len(held)))
	for _, name := range held {
		names[name] = true
	}
	for _, name := range doubtful {
		if len(names) < total {
			names[name] = true
		}
	}
	for n := 0; len(names) < total; n++ {
		names["slot-"+strconv.Itoa(n)] = true
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.SortFunc(sorted, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return sorted
}
