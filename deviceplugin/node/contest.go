// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"
)

// OfferedByOthers: what other device plugins of the node offer to the kubelet, by resource.
type OfferedByOthers struct{ Offers []OtherOffer }

// OtherOffer is a resource of another device plugin, with the names of what it offers as that. Such
// plugins name devices by UUID, with more before or behind it for shares.
type OtherOffer struct {
	Resource string
	IDs      []string
}

func (e OfferedByOthers) applyTo(s *State) { s.othersOffer = e.Offers }

// findContests notes which devices others offer, too: each would be given twice.
func (s *State) findContests() {
	for i := range s.devices {
		d := &s.devices[i]
		d.contestedAs = ""
		at := slices.IndexFunc(s.othersOffer, func(o OtherOffer) bool {
			return slices.ContainsFunc(o.IDs, func(id string) bool { return strings.Contains(id, string(d.facts.UUID)) })
		})
		if at >= 0 && d.facts.UUID != "" {
			d.contestedAs = s.othersOffer[at].Resource
		}
	}
}

// contestReason says why a device takes no pods that others offer, too, if it does not.
func (s *State) contestReason(d *device) (why string, is bool) {
	if d.contestedAs == "" || s.cfg.ServesContested {
		return "", false
	}
	return fmt.Sprintf("another device plugin of this node offers it, too, as %s", d.contestedAs), true
}

// contestOf returns as what others offer a device that is to be offered, "" if they do not.
func (s *State) contestOf(d *device) string {
	if s.isWanted(d) {
		return d.contestedAs
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
