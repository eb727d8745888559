// SPDX-License-Identifier: Apache-2.0

package holds

import "fmt"

const (
	// VacantFor is how long the slot of a pod that is gone waits for another one of its job.
	VacantFor = 60
	// ClearedFor is how long a hold without victims waits for its pods to be bound: the node may
	// need some time to give the devices back.
	ClearedFor = 60
)

// Cluster is what one session knows of pods and nodes.
type Cluster interface {
	// Waits returns the shape of a pod of a job that waits to be placed; false for any other pod.
	Waits(Job, Pod) (shape string, waits bool)
	// IsBinding reports whether a pod of a job is being bound, and IsBound whether it has a node.
	IsBinding(Job, Pod) bool
	IsBound(Job, Pod) bool
	// Members returns the pods of a job that wait, in a stable order, and whether the job exists.
	Members(Job) (waiting []Member, exists bool)
	// Occupies reports whether a victim still takes anything of its node, and LeavesSince whether
	// it has been told to leave, and at what time of day, in seconds.
	Occupies(*Victim) bool
	LeavesSince(*Victim) (since int64, leaves bool)
	// IsUsable reports whether a node is there and takes pods.
	IsUsable(node string) bool
}

// Member is a pod of a job that waits.
type Member struct {
	Pod   Pod
	Name  string
	Shape string
	// Made is the time of day at which it was made, in seconds.
	Made int64
}

// Outcome is how a hold ended.
type Outcome uint8

// The outcomes.
const (
	// Placed: all of its pods are bound.
	Placed Outcome = iota
	// Abandoned: its pods are gone or ask for something else.
	Abandoned
	// Failed: something outside prevents it.
	Failed
	// Outcomes is how many there are.
	Outcomes
)

// String is the outcome as a value of a metric's label.
func (o Outcome) String() string {
	if o >= Outcomes {
		return "unknown"
	}
	return [Outcomes]string{"placed", "abandoned", "failed"}[o]
}

// End is a hold that has ended.
type End struct {
	Hold    Hold
	Outcome Outcome
	// Why says what failed.
	Why string
}

// Refresh brings all holds up to date with a session and returns those that have ended.
func (b *Book) Refresh(c Cluster, now int64) (ended []End) {
	refreshAll := func(refresh func(*Hold) (End, bool)) {
		for _, h := range b.InOrder() {
			if end, over := refresh(h); over {
				ended = append(ended, end)
				b.recordEnd(end, now)
			}
		}
	}
	refreshAll(func(h *Hold) (End, bool) {
		if h.IsMove() {
			return End{}, false // who moves depends on who has to leave
		}
		return refreshHold(h, c, now)
	})
	wanted := b.Wanted()
	refreshAll(func(h *Hold) (End, bool) {
		if !h.IsMove() {
			return End{}, false
		}
		return h.refreshMove(c, wanted, now)
	})
	refreshAll(func(h *Hold) (End, bool) {
		v := b.findDisplaced(h, c)
		if v == nil {
			return End{}, false
		}
		return End{Hold: *h, Outcome: Failed, Why: fmt.Sprintf("the place is lost to which pod %s was to move", v.Name)}, true
	})
	for j := range b.failures {
		if _, exists := c.Members(j); !exists {
			delete(b.failures, j)
		}
	}
	return ended
}

// recordEnd takes a hold that has ended out of the book.
func (b *Book) recordEnd(e End, now int64) {
	switch e.Outcome {
	case Failed:
		b.Fail(e.Hold.Job, now)
	case Placed:
		delete(b.failures, e.Hold.Job)
		b.Release(e.Hold.Job)
	default:
		b.Release(e.Hold.Job)
	}
}

// refreshHold brings one hold up to date. It reports whether the hold is over.
func refreshHold(h *Hold, c Cluster, now int64) (End, bool) {
	before := *h
	members, exists := c.Members(h.Job)
	if !exists {
		return End{Hold: before, Outcome: Abandoned}, true
	}
	bound := h.refreshSlots(c, members, now)
	h.dropGoneVictims(c, now)
	switch node, unusable := h.findUnusableNode(c); {
	case len(h.Slots) == 0 && bound:
		return End{Hold: before, Outcome: Placed}, true
	case len(h.Slots) == 0:
		return End{Hold: before, Outcome: Abandoned}, true
	case unusable:
		return End{Hold: before, Outcome: Failed, Why: fmt.Sprintf("node %s takes no pods any more", node)}, true
	}
	if v := h.findOverdueVictim(now); v != nil {
		return End{Hold: before, Outcome: Failed, Why: fmt.Sprintf("pod %s on node %s does not end", v.Name, v.Node)}, true
	}
	if h.cleared != 0 && now-h.cleared > ClearedFor {
		return End{Hold: before, Outcome: Failed, Why: "the room that was made cannot be used"}, true
	}
	return End{}, false
}

// refreshSlots drops slots that are not needed any more and gives vacant ones to other pods of the
// job. It reports whether a pod was bound.
func (h *Hold) refreshSlots(c Cluster, members []Member, now int64) (bound bool) {
	taken := map[Pod]bool{}
	for i := range h.Slots {
		taken[h.Slots[i].Pod] = true
	}
	kept := make([]Slot, 0, len(h.Slots))
	for _, s := range h.Slots {
		shape, waits := c.Waits(h.Job, s.Pod)
		switch {
		case waits && shape == s.Shape:
			s.vacant = 0
		case waits: // it asks for something else
			continue
		case c.IsBinding(h.Job, s.Pod): // the call may fail
			s.vacant = 0
		case c.IsBound(h.Job, s.Pod):
			bound = true
			continue
		default:
			if !s.fillWithin(VacantFor, members, taken, now) {
				continue
			}
		}
		kept = append(kept, s)
	}
	h.Slots = kept
	return bound
}

// fillFrom gives the slot to another pod of its job that waits and was made since its pod was told
// to leave, if there is one.
func (s *Slot) fillFrom(members []Member, taken map[Pod]bool, now int64) bool {
	for _, m := range members {
		if m.Shape == s.Shape && !taken[m.Pod] && m.Made >= s.told {
			s.Pod, s.Name, s.vacant, s.filled = m.Pod, m.Name, 0, now
			taken[m.Pod] = true
			return true
		}
	}
	return false
}

// fillWithin is fillFrom for a pod that is gone. It returns false if none has come for too long.
func (s *Slot) fillWithin(seconds int64, members []Member, taken map[Pod]bool, now int64) bool {
	if s.fillFrom(members, taken, now) {
		return true
	}
	if s.vacant == 0 {
		s.vacant = now
	}
	return now-s.vacant <= seconds
}

// IsVacant reports whether the pod of the slot is gone and no other has taken its place.
func (s *Slot) IsVacant() bool { return s.vacant != 0 }

// dropGoneVictims drops the victims that have left, and notes when the last one has.
func (h *Hold) dropGoneVictims(c Cluster, now int64) {
	left := make([]Victim, 0, len(h.Victims))
	for i := range h.Victims {
		if c.Occupies(&h.Victims[i]) {
			left = append(left, h.Victims[i])
		}
	}
	h.Victims = left
	if len(left) == 0 && h.cleared == 0 {
		h.cleared = now
	}
}

func (h *Hold) findUnusableNode(c Cluster) (node string, found bool) {
	for i := range h.Slots {
		if !c.IsUsable(h.Slots[i].Node) {
			return h.Slots[i].Node, true
		}
	}
	return "", false
}

// findOverdueVictim returns a victim that should have left by now, nil if there is none.
func (h *Hold) findOverdueVictim(now int64) *Victim {
	for i := range h.Victims {
		if now > h.Victims[i].Deadline {
			return &h.Victims[i]
		}
	}
	return nil
}
