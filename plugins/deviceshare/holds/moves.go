// SPDX-License-Identifier: Apache-2.0

package holds

import (
	"cmp"
	"slices"
)

const (
	// ReturnsFor is how long the place of a pod that has left to move waits for its successor.
	ReturnsFor = 120
	// BindsFor is how long it waits for a successor that is there to be bound.
	BindsFor = 60
)

// IsMove reports whether the hold keeps places for successors of pods that move. Nobody leaves for
// such a hold.
func (h *Hold) IsMove() bool {
	return slices.ContainsFunc(h.Slots, func(s Slot) bool { return s.From != nil })
}

// AwaitsSuccessor reports whether the pod of the slot moves and its successor is not there yet.
func (s *Slot) AwaitsSuccessor() bool { return s.From != nil && s.Pod == s.From.Pod }

// refreshMove brings a hold of pods that move up to date. It reports whether the hold is over.
// Wanted are the pods that have to leave.
func (h *Hold) refreshMove(c Cluster, wanted map[Pod]bool, now int64) (End, bool) {
	before := *h
	members, exists := c.Members(h.Job)
	if !exists {
		return End{Hold: before, Outcome: Abandoned}, true
	}
	taken := map[Pod]bool{}
	for i := range h.Slots {
		taken[h.Slots[i].Pod] = true
	}
	bound := false
	var moving, resting []Slot
	for _, s := range h.Slots {
		isBound, keep := s.refreshMoved(h.Job, c, members, taken, wanted, now)
		bound = bound || isBound
		switch {
		case !keep:
		case s.rests(c):
			resting = append(resting, s)
		default:
			moving = append(moving, s)
		}
	}
	if len(moving) > 0 {
		h.Slots = append(moving, resting...)
		return End{}, false
	}
	if bound {
		return End{Hold: before, Outcome: Placed}, true
	}
	return End{Hold: before, Outcome: Abandoned}, true
}

// rests reports whether the pod of the slot is not affected so far by others that move.
func (s *Slot) rests(c Cluster) bool {
	return s.Stays && s.AwaitsSuccessor() && c.Occupies(s.From) && !c.IsLeaving(s.From)
}

// refreshMoved brings one slot up to date. It reports whether its pod was bound, and whether the
// slot is kept.
func (s *Slot) refreshMoved(j Job, c Cluster, members []Member, taken, wanted map[Pod]bool, now int64) (bound, keep bool) {
	switch {
	case !c.IsUsable(s.Node):
		return false, false
	case s.rests(c):
		return false, true
	case s.AwaitsSuccessor() && c.Occupies(s.From):
		if !wanted[s.From.Pod] && !c.IsLeaving(s.From) {
			return false, false // it need not leave any more
		}
		return false, s.fillMoved(members, taken, now) || s.Stays || now <= s.From.Deadline
	case s.AwaitsSuccessor():
		if s.fillMoved(members, taken, now) {
			return false, true
		}
		s.vacant = cmp.Or(s.vacant, now)
		return false, now-s.vacant <= ReturnsFor
	case c.IsBound(j, s.Pod):
		return true, false
	case c.IsBinding(j, s.Pod):
		return false, true
	}
	shape, waits := c.Waits(j, s.Pod)
	return false, waits && shape == s.Shape && now-s.filled <= BindsFor
}

// fillMoved gives the slot to a pod of the job that waits, if there is one.
func (s *Slot) fillMoved(members []Member, taken map[Pod]bool, now int64) bool {
	for _, m := range members {
		if m.Shape == s.Shape && !taken[m.Pod] {
			s.Pod, s.Name, s.vacant, s.filled = m.Pod, m.Name, 0, now
			taken[m.Pod] = true
			return true
		}
	}
	return false
}

// PlaceOf returns the node on which a place is kept for a pod that moves, "" if none is.
func (b *Book) PlaceOf(j Job, p Pod) (node string) {
	h := b.holds[j]
	for i := 0; h != nil && i < len(h.Slots); i++ {
		if s := &h.Slots[i]; s.From != nil && s.From.Pod == p {
			return s.Node
		}
	}
	return ""
}

// MovesFor reports whether pods move so that a job has room.
func (h *Hold) MovesFor() bool {
	return slices.ContainsFunc(h.Victims, func(v Victim) bool { return v.Action == Consolidate })
}
