// SPDX-License-Identifier: Apache-2.0

package holds

import "slices"

const (
	// ReturnsFor is how long the place of a pod that has left to move waits for its successor.
	ReturnsFor = 120
	// BindsFor is how long it waits, from then on, for a successor that is there to be bound.
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
		case s.isResting(c):
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

// isResting reports whether the pod of the slot is not affected so far by others that move.
func (s *Slot) isResting(c Cluster) bool {
	if !s.Stays || !s.AwaitsSuccessor() {
		return false
	}
	_, leaves := c.LeavesSince(s.From)
	return c.Occupies(s.From) && !leaves
}

// refreshMoved brings one slot up to date. It reports whether its pod was bound, and whether the
// slot is kept.
func (s *Slot) refreshMoved(j Job, c Cluster, members []Member, taken, wanted map[Pod]bool, now int64) (bound, keep bool) {
	shape, waits := c.Waits(j, s.Pod)
	switch {
	case s.From == nil: // of a pod that waits, in a hold that was found again after a restart
		return c.IsBound(j, s.Pod), waits && shape == s.Shape || c.IsBinding(j, s.Pod)
	case !c.IsUsable(s.Node), s.Stays && wanted[s.From.Pod]: // it leaves for somebody else
		return false, false
	case s.AwaitsSuccessor():
		return false, s.awaitSuccessor(c, members, taken, wanted, now)
	case c.IsBound(j, s.Pod):
		return true, false
	case c.IsBinding(j, s.Pod):
		return false, true
	}
	switch {
	case !waits: // it is gone before it was bound
		s.Pod, s.Name = s.From.Pod, s.From.Name
		return false, s.awaitSuccessor(c, members, taken, wanted, now)
	case c.Occupies(s.From):
		s.filled = now // its queue may have no room for both
	}
	return false, shape == s.Shape && now-s.filled <= BindsFor
}

// awaitSuccessor gives the slot to the successor of its pod once that one leaves. It reports
// whether the slot is kept.
func (s *Slot) awaitSuccessor(c Cluster, members []Member, taken, wanted map[Pod]bool, now int64) bool {
	since, leaves := c.LeavesSince(s.From)
	s.told = max(s.told, since)
	switch {
	case !c.Occupies(s.From):
		return s.fillWithin(ReturnsFor, members, taken, now)
	case leaves:
		return s.fillFrom(members, taken, now) || s.Stays || now <= s.From.Deadline
	}
	return s.Stays || wanted[s.From.Pod] // else it need not leave any more
}

// findDisplaced returns a victim of the hold that was to move, was not told yet, and has no place
// any more; nil if there is none.
func (b *Book) findDisplaced(h *Hold, c Cluster) *Victim {
	for i := range h.Victims {
		v := &h.Victims[i]
		if _, leaves := c.LeavesSince(v); v.Action == Consolidate && c.Occupies(v) && !leaves && b.PlaceOf(v.Pod) == "" {
			return v
		}
	}
	return nil
}

// PlaceOf returns the node on which a place is kept for a pod that moves, "" if none is.
func (b *Book) PlaceOf(p Pod) (node string) {
	for _, h := range b.holds {
		for i := range h.Slots {
			if s := &h.Slots[i]; s.From != nil && s.From.Pod == p && !s.Stays {
				return s.Node
			}
		}
	}
	return ""
}

// MovesFor reports whether pods move so that a job has room.
func (h *Hold) MovesFor() bool {
	return slices.ContainsFunc(h.Victims, func(v Victim) bool { return v.Action == Consolidate })
}
