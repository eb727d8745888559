// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"deviceshare/sharing"
)

// Fate is what becomes of a pod that its node refused for good.
type Fate uint8

// The fates.
const (
	// Evicted: the pod goes, so that it is placed anew.
	Evicted Fate = iota
	// Kept: the pod stays, and a person has to act.
	Kept
)

// String is the fate for metrics, scenarios and logs.
func (f Fate) String() string { return [...]string{"evicted", "kept"}[f] }

// Misplaced: this node can never start a pod as it was placed. The pod's first fate is
// told, and no other one until the pod has ended.
type Misplaced struct {
	Owner          sharing.Owner
	Namespace, Pod string
	Fate           Fate
	Why            string
}

func (e Misplaced) applyTo(s *State) {
	if !slices.ContainsFunc(s.misplaced, e.sameOwner) {
		s.misplaced = append(slices.Clip(s.misplaced), e)
	}
}

func (e Misplaced) sameOwner(x Misplaced) bool { return x.Owner == e.Owner }

// misplacedNotices are about pods that this node refused for good.
func misplacedNotices(before, after *State) []Notice {
	var all []Notice
	for _, m := range after.misplaced {
		if !slices.ContainsFunc(before.misplaced, m.sameOwner) {
			all = append(all, Notice{Kind: PodMisplaced, Pod: m, Detail: m.Why})
		}
	}
	return all
}
