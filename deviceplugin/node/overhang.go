// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"deviceshare/sharing"
)

// Cause is why pods hold more than the node wants to offer, as people are told.
type Cause string

// The causes.
const (
	// CauseHidden: the node configuration hides the device.
	CauseHidden Cause = "the configuration no longer offers it"
	// CauseAway: the device was taken out, or another one is in its place.
	CauseAway Cause = "the driver does not list it"
	// CauseShares: the device carries more shares than it may by now.
	CauseShares Cause = "more shares of it are held than the configuration offers now"
	// CauseMemory: likewise of its memory.
	CauseMemory Cause = "more of its memory is held than the configuration offers now"
	// CauseCores: likewise of its compute.
	CauseCores Cause = "more of its compute is held than the configuration offers now"
	// CauseUnit: what a pod wrote is more units than what it holds takes by now.
	CauseUnit Cause = "memory is counted in larger units now than when the pods were written"
)

// Overhang is something that pods hold beyond what the node wants to offer.
type Overhang struct {
	Device sharing.DeviceID // "" with CauseUnit
	Cause  Cause
	Beyond Amounts
	// Pods are those that hold it, of which some would have to end.
	Pods []Holding
}

func (s *State) countOverhangs(inv *sharing.Inventory) []Overhang {
	if len(s.holdings.Pods) == 0 {
		return nil
	}
	all := withUnoffered(inv, s.holdings.Pods)
	ledger := sharing.NewLedger(&all, nil)
	for i := range s.holdings.Pods {
		ledger.Record(s.holdings.Pods[i].Owner, s.holdings.Pods[i].Placement)
	}
	var out []Overhang
	for i, v := range ledger.Views() {
		if len(v.Held()) == 0 {
			continue
		}
		holders := s.holdings.podsOn(v.Device.ID)
		for _, o := range s.deviceOverhangs(&v, i < len(inv.Devices)) {
			o.Device, o.Pods = v.Device.ID, holders
			out = append(out, o)
		}
	}
	return append(out, s.otherUnits()...)
}

// deviceOverhangs compares what is held of one device with what it offers.
func (s *State) deviceOverhangs(v *sharing.View, isOffered bool) []Overhang {
	used := Amounts{Number: int64(v.Sharers()), Memory: s.settings.unitsOf(v.UsedMemory()), Cores: int64(v.UsedCores())}
	if !isOffered {
		cause := CauseAway
		if d := s.findDevice(v.Device.ID); d != nil && d.presence != replaced {
			cause = CauseHidden
		}
		return []Overhang{{Cause: cause, Beyond: used}}
	}
	var out []Overhang
	offered := s.settings.amountsOf(v.Device)
	if n := used.Number - offered.Number; n > 0 {
		out = append(out, Overhang{Cause: CauseShares, Beyond: Amounts{Number: n}})
	}
	if hasPartitions(v) { // their memory and compute are the hardware's, whatever is offered
		return out
	}
	if v.UsedMemory() > v.Device.Memory {
		out = append(out, Overhang{Cause: CauseMemory, Beyond: Amounts{Memory: used.Memory - offered.Memory}})
	}
	if n := used.Cores - offered.Cores; n > 0 {
		out = append(out, Overhang{Cause: CauseCores, Beyond: Amounts{Cores: n}})
	}
	return out
}

func hasPartitions(v *sharing.View) bool {
	return slices.ContainsFunc(v.Held(), func(h sharing.Held) bool { return !h.Share.Partition.IsZero() })
}

// otherUnits is what pods count for beyond what they hold, because the unit was smaller when they
// were written.
func (s *State) otherUnits() []Overhang {
	o := Overhang{Cause: CauseUnit}
	for i := range s.holdings.Pods {
		h := &s.holdings.Pods[i]
		if n := h.Asked.Memory - s.settings.unitsOf(h.heldMemory()); h.heldMemory() > 0 && n > 0 {
			o.Beyond = o.Beyond.plus(Amounts{Memory: n})
			o.Pods = append(o.Pods, *h)
		}
	}
	if len(o.Pods) == 0 {
		return nil
	}
	return []Overhang{o}
}

func (h *Holding) heldMemory() sharing.Bytes {
	var sum sharing.Bytes
	for i := range h.Placement.Containers {
		for _, s := range h.Placement.Containers[i].Shares {
			sum = sum.Plus(max(s.Memory, 0))
		}
	}
	return sum
}

func (h *Holdings) podsOn(id sharing.DeviceID) []Holding {
	var pods []Holding
	for i := range h.Pods {
		if h.Pods[i].Placement.Uses(id) {
			pods = append(pods, h.Pods[i])
		}
	}
	return pods
}

// withUnoffered is an inventory, followed by devices that offer nothing for those that pods hold
// shares of and that are not in it.
func withUnoffered(inv *sharing.Inventory, pods []Holding) sharing.Inventory {
	all := sharing.Inventory{Node: inv.Node, Devices: slices.Clone(inv.Devices)}
	for i := range pods {
		for j := range pods[i].Placement.Containers {
			for _, s := range pods[i].Placement.Containers[j].Shares {
				if _, known := all.Device(s.Device); !known {
					all.Devices = append(all.Devices, sharing.Device{ID: s.Device})
				}
			}
		}
	}
	return all
}

func overhangNotices(before, after *State) []Notice {
	var all []Notice
	was, is := before.knownOverhangs(), after.knownOverhangs()
	for _, o := range is {
		told := findOverhang(was, &o).Pods
		n := Notice{Kind: OfferExceeded, Device: o.Device, Detail: string(o.Cause)}
		for _, pod := range o.Pods {
			if !slices.ContainsFunc(told, func(h Holding) bool { return h.Owner == pod.Owner }) {
				n.Pods = append(n.Pods, pod)
			}
		}
		if len(n.Pods) > 0 {
			all = append(all, n)
		}
	}
	for _, o := range was {
		if len(findOverhang(is, &o).Pods) == 0 && after.isConfigKnown() {
			all = append(all, Notice{Kind: OfferMet, Device: o.Device, Detail: string(o.Cause)})
		}
	}
	return all
}

// knownOverhangs are none while it is not known what the administrator wants, or which devices
// there are.
func (s *State) knownOverhangs() []Overhang {
	if !s.isConfigKnown() || !s.scanned {
		return nil
	}
	return s.Overhangs()
}

func (s *State) isConfigKnown() bool { return !s.unknown.is && s.settings.Offers != nil }

// findOverhang is the overhang of the same device and cause; an empty one if there is none.
func findOverhang(all []Overhang, o *Overhang) Overhang {
	i := slices.IndexFunc(all, func(x Overhang) bool { return x.Device == o.Device && x.Cause == o.Cause })
	if i < 0 {
		return Overhang{}
	}
	return all[i]
}
