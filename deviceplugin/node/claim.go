// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/upgrade"
)

// claim is what others want of the driver of the node.
type claim struct {
	// upgrade is how far NVIDIA's GPU operator is with replacing it.
	upgrade upgrade.Phase
	// released: an administrator has it let go.
	released bool
}

// Why devices take no pods while the driver is claimed.
const (
	driverUpgrade  = "NVIDIA's GPU operator replaces the driver of this node (label " + upgrade.StateLabel + "): new pods wait until it has"
	driverReleased = "the driver of this node was released: new pods wait until it is used again (kubectl deviceshare release)"
)

// DriverReleased: an administrator wants the driver let go, or no longer.
type DriverReleased struct{ Is bool }

func (e DriverReleased) applyTo(s *State) { s.claim.released = e.Is }

// IsDriverReleased reports that the driver is to be let go: nothing of this process may use it.
func (s State) IsDriverReleased() bool { return s.claim.released }

// reason says why no pods start while the driver is claimed, if it is.
func (c claim) reason() (why string, is bool) {
	switch {
	case c.released:
		return driverReleased, true
	case !c.upgrade.TakesPods():
		return driverUpgrade, true
	}
	return "", false
}

// interruption says why devices of a mode take no pods although they work, if they do not.
func (s *State) interruption(mode sharing.Mode) (why string, is bool) {
	if why, is := s.claim.reason(); is {
		return why, true
	}
	return s.modeInterruption(mode)
}

// claimNotices tell once of the whole node what becomes of the driver.
func claimNotices(before, after *State) []Notice {
	was, wasClaimed := before.claim.reason()
	why, isClaimed := after.claim.reason()
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
