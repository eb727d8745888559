// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"

	"deviceshare/sharing"
)

// requireAsked refuses a placement that gives a container more than its spec asks for. No scheduler
// does that. Who may write annotations past the chart's policies could otherwise take a device
// whole, without limits, or memory that a quota keeps from him.
func (s State) requireAsked(a *Ask) *Refusal {
	inv := s.Inventory()
	for i := range a.Requests {
		req := &a.Requests[i]
		given, ok := a.Placement.Container(req.Container)
		if !ok {
			continue
		}
		for j := range given.Shares {
			share := &given.Shares[j]
			if d, ok := inv.Device(share.Device); ok && exceedsRequest(share, req, d) {
				return newRefusal(OtherAmounts, "container %s was given %s of device %s, more than its spec asks for", req.Container, formatAmount(share), share.Device)
			}
		}
	}
	return nil
}

// exceedsRequest reports whether a share is more than what is asked of a device. A partition may
// be: there is none of every size. Compute that is not asked for may have been given by default.
func exceedsRequest(share *sharing.Share, req *sharing.Request, d *sharing.Device) bool {
	if !share.Partition.IsZero() {
		return false
	}
	ask := req.Memory.On(d.Memory)
	partial := req.Cores > 0 && req.Cores < 100
	unbound := share.Cores <= 0 || share.Cores > req.Cores
	return share.Memory > ask || partial && unbound || share.Whole && (partial || ask < d.Memory)
}

func formatAmount(s *sharing.Share) string {
	if s.Whole {
		return "all"
	}
	return s.Memory.String()
}

// requireRoom refuses a pod that would be given what others have. The scheduler keeps the books;
// this finds what got past it: a second scheduler with books of its own, a placement that somebody
// else wrote, a mistake. The pod that began first keeps its shares. A placement that is wrong by
// itself is not made anew: the same scheduler might make the same one again and again.
func (s State) requireRoom(a *Ask, running []Running) *Refusal {
	inv := s.Inventory()
	ledger := sharing.NewLedger(&inv, s.cfg.Backends)
	if err := ledger.Room(a.Owner, a.Placement); err != nil {
		return newRefusal(PlacementWrong, "its placement is wrong: %v", err)
	}
	var beside []string
	for i := range running {
		r := &running[i]
		if r.Owner != a.Owner && a.Placement.Meets(&r.Placement) {
			ledger.Record(r.Owner, r.Placement)
			beside = append(beside, r.Pod)
		}
	}
	err := ledger.Room(a.Owner, a.Placement)
	if err == nil {
		return nil
	}
	slices.Sort(beside)
	return newRefusal(DeviceTaken, "it was given what it cannot have beside %s: %v", strings.Join(beside, ", "), err)
}
