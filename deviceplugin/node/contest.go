// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
)

// OfferedByOthers: what others than this device plugin offer of the node's devices.
type OfferedByOthers struct{ Offers []OtherOffer }

// OtherOffer is what one of them offers. Either Resource is set, as which another device plugin
// offers it to the kubelet, or Driver, a DRA driver that offers it in ResourceSlices. IDs are the
// names that it gives to what it offers: UUIDs, with more before or behind them for shares.
type OtherOffer struct {
	Resource, Driver string
	IDs              []string
}

// String says who offers a device, as conditions and events go on after its name.
func (o *OtherOffer) String() string {
	if o.Driver != "" {
		return "DRA driver " + o.Driver + " offers it, too, in a ResourceSlice"
	}
	return "another device plugin of this node offers it, too, as " + o.Resource
}

func (e OfferedByOthers) applyTo(s *State) { s.othersOffer = e.Offers }

// findContests notes which devices others offer, too: each would be given twice.
func (s *State) findContests() {
	for i := range s.devices {
		d := &s.devices[i]
		d.contest = ""
		at := slices.IndexFunc(s.othersOffer, func(o OtherOffer) bool {
			return slices.ContainsFunc(o.IDs, func(id string) bool { return strings.Contains(id, string(d.facts.UUID)) })
		})
		if at >= 0 && d.facts.UUID != "" {
			d.contest = s.othersOffer[at].String()
		}
	}
}

// contestReason says why a device takes no pods that others offer, too, if it does not.
func (s *State) contestReason(d *device) (why string, is bool) {
	return d.contest, d.contest != "" && !s.cfg.ServesContested
}

// contestOf says who offers a device that is to be offered, "" if nobody else does.
func (s *State) contestOf(d *device) string {
	if s.isWanted(d) {
		return d.contest
	}
	return ""
}

// contestNotices tell of a device that others began to offer, or offer no longer.
func contestNotices(n Notice, before *State, old *device, after *State, d *device) []Notice {
	was, is := before.contestOf(old), after.contestOf(d)
	switch {
	case is == was:
		return nil
	case is == "":
		n.Kind = DeviceUncontested
	default:
		n.Kind, n.Detail, n.Pods = DeviceContested, is, after.holdings.podsOn(d.facts.UUID)
	}
	return []Notice{n}
}
