// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/upgrade"
	"deviceshare/sharing/wire"
)

// claim is what others want of the driver of the node.
type claim struct {
	// upgrade is how far NVIDIA's GPU operator is with replacing it.
	upgrade upgrade.Phase
	// wanted: an administrator wants it let go. gone: this process does not use it any more.
	wanted, gone bool
}

// Why devices take no pods while the driver is claimed, beside wire.ReasonReleased.
const (
	driverUpgrade   = "NVIDIA's GPU operator replaces the driver of this node (label " + upgrade.StateLabel + "): new pods wait until it has"
	driverReleasing = "the driver of this node is to be released, and is still in use"
)

// DriverWanted: an administrator wants the driver let go, or no longer.
type DriverWanted struct{ Is bool }

func (e DriverWanted) applyTo(s *State) { s.claim.wanted = e.Is }

// DriverGone: this process does not use the driver any more, or does again, or cannot.
type DriverGone struct{ Is bool }

func (e DriverGone) applyTo(s *State) { s.claim.gone = e.Is }

// IsDriverWanted reports that an administrator wants the driver let go.
func (s State) IsDriverWanted() bool { return s.claim.wanted }

// IsDriverGone reports that this process does not use the driver.
func (s State) IsDriverGone() bool { return s.claim.gone }

// MayReleaseDriver reports that the driver is to be let go and that no device has to leave mode mps
// before: its daemon uses the driver, and is ended by means of it.
func (s State) MayReleaseDriver() bool {
	return s.claim.wanted && !slices.ContainsFunc(s.devices, func(d device) bool {
		if !s.leavesMPS(&d) {
			return false
		}
		switch c := s.conditionOf(&d); c.Kind {
		case Unchecked, Changing, Failing:
			return true
		case Waiting:
			return c.Detail != driverReleasing
		}
		return false
	})
}

// leavesMPS reports whether a device is brought out of mode mps before the driver is let go.
func (s *State) leavesMPS(d *device) bool {
	return s.claim.wanted && !s.claim.gone && s.settings.Offers != nil && s.settings.Offers.Offer(&d.facts).Mode == sharing.MPS
}

// findReason says why no pods start while the driver is claimed, if it is.
func (c claim) findReason() (why string, is bool) {
	switch {
	case c.gone:
		return wire.ReasonReleased, true
	case c.wanted:
		return driverReleasing, true
	case !c.upgrade.TakesPods():
		return driverUpgrade, true
	}
	return "", false
}

// findInterruption says why a device takes no pods although it works, if it does not. One that is
// on its way out of mode mps is not interrupted.
func (s *State) findInterruption(d *device, mode sharing.Mode) (why string, is bool) {
	if s.leavesMPS(d) {
		return "", false
	}
	if why, is := s.claim.findReason(); is {
		return why, true
	}
	if why, is := s.contestReason(d); is {
		return why, true
	}
	return s.modeInterruption(mode)
}

// claimNotices tell once of the whole node what becomes of the driver.
func claimNotices(before, after *State) []Notice {
	was, wasClaimed := before.claim.findReason()
	why, isClaimed := after.claim.findReason()
	switch {
	case isClaimed && why != was:
		return []Notice{{Kind: DriverClaimed, Detail: why, Pods: after.holdings.mpsFirst()}}
	case wasClaimed && !isClaimed:
		return []Notice{{Kind: DriverReturned}}
	case !isClaimed && after.claim.upgrade == upgrade.Planned && before.claim.upgrade != upgrade.Planned:
		return []Notice{{Kind: DriverPlanned, Pods: after.holdings.mpsFirst()}}
	}
	return nil
}

// mpsFirst returns the pods that hold devices of the node, first those whose MPS daemons have to
// end with them.
func (h *Holdings) mpsFirst() []Holding {
	usesMPS := func(p *Holding) bool {
		return slices.ContainsFunc(p.Placement.Containers, func(c sharing.ContainerShares) bool {
			return slices.ContainsFunc(c.Shares, func(share sharing.Share) bool { return share.Mode == sharing.MPS })
		})
	}
	return slices.SortedStableFunc(slices.Values(h.Pods), func(a, b Holding) int {
		if x, y := usesMPS(&a), usesMPS(&b); x != y {
			return map[bool]int{true: -1, false: 1}[x]
		}
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
}
