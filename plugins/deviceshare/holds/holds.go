// SPDX-License-Identifier: Apache-2.0

package holds

import (
	"cmp"
	"maps"
	"slices"
)

// Pod is the UID of a pod.
type Pod string

// Job is the key of a job: the pods that start together.
type Job string

// The actions that choose victims.
const (
	Preempt = "preempt"
	Reclaim = "reclaim"
	// Consolidate has victims move.
	Consolidate = "consolidate"
)

// Hold is the room that is being made for one job.
type Hold struct {
	Job Job
	// Priority orders holds: the highest is served first.
	Priority int32
	// Since is when the hold began.
	Since   int64
	Slots   []Slot
	Victims []Victim
	// cleared is since when no victim is left, 0 while one is.
	cleared int64
}

// Slot is the place that is kept for one pod.
type Slot struct {
	Pod Pod
	// Name is namespace/name of the pod.
	Name string
	Node string
	// Shape is equal for pods that may take each other's slot.
	Shape string
	// From is the pod that moves here, or that may have to be made again here because its gang
	// moves: the slot waits for its successor. It is nil for the slot of a pod that waits. Stays
	// says that the pod need not leave.
	From  *Victim
	Stays bool
	// vacant is since when the pod is gone, 0 while it is there; filled since when a successor is.
	// told is the time of day at which From was told to leave, 0 if that is not known.
	vacant, filled, told int64
}

// Victim is a pod that has to leave.
type Victim struct {
	Pod  Pod
	Name string
	Node string
	// For is the node on which its leaving makes room, "" for its own. Of a gang that leaves as a
	// whole, some members run on other nodes.
	For string
	// Action chose the victim: Preempt, Reclaim or Consolidate.
	Action string
	// Deadline is when the pod should be gone at the latest.
	Deadline int64
}

// RoomOn returns the node on which the leaving of a victim makes room.
func (v *Victim) RoomOn() string { return cmp.Or(v.For, v.Node) }

// Nodes returns the nodes on which the hold has a slot.
func (h *Hold) Nodes() map[string]bool {
	nodes := map[string]bool{}
	for i := range h.Slots {
		nodes[h.Slots[i].Node] = true
	}
	return nodes
}

// Book has the holds of all jobs, and what failed before.
type Book struct {
	holds    map[Job]*Hold
	failures map[Job]failures
}

// NewBook returns a book without holds.
func NewBook() *Book { return &Book{holds: map[Job]*Hold{}, failures: map[Job]failures{}} }

// Keep adds a hold. Slots and victims of a job that has a hold already are added to it; a pod has
// one slot, the latest.
func (b *Book) Keep(h Hold) {
	known, ok := b.holds[h.Job]
	if !ok {
		b.holds[h.Job] = &h
		return
	}
	known.Priority, known.cleared = h.Priority, 0
	for _, s := range h.Slots {
		known.Slots = slices.DeleteFunc(known.Slots, func(old Slot) bool { return old.Pod == s.Pod })
		known.Slots = append(known.Slots, s)
	}
	for _, v := range h.Victims {
		if !slices.ContainsFunc(known.Victims, func(old Victim) bool { return old.Pod == v.Pod }) {
			known.Victims = append(known.Victims, v)
		}
	}
}

// Of returns the hold of a job, nil if it has none.
func (b *Book) Of(j Job) *Hold { return b.holds[j] }

// Len returns how many holds there are.
func (b *Book) Len() int { return len(b.holds) }

// HasFailures reports whether a hold of any job has failed.
func (b *Book) HasFailures() bool { return len(b.failures) > 0 }

// InOrder returns the holds in the order in which they are served: by priority, then by age.
func (b *Book) InOrder() []*Hold {
	return slices.SortedFunc(maps.Values(b.holds), func(x, y *Hold) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(x.Since, y.Since), cmp.Compare(x.Job, y.Job))
	})
}

// Wanted returns the victims of all holds: nobody else may be asked to leave.
func (b *Book) Wanted() map[Pod]bool {
	wanted := map[Pod]bool{}
	for _, h := range b.holds {
		for i := range h.Victims {
			wanted[h.Victims[i].Pod] = true
		}
	}
	return wanted
}

// Release ends a hold whose pods get a place without it, for example because they fit now.
func (b *Book) Release(j Job) { delete(b.holds, j) }

// Fail ends a hold that something outside prevents, and counts the failure.
func (b *Book) Fail(j Job, now int64) {
	if _, ok := b.holds[j]; ok {
		delete(b.holds, j)
		b.failures[j] = b.failures[j].addFailure(now)
	}
}

// TakeOver gives the slots of a job new owners of a more important job, with the victims for the
// same nodes. Nobody is evicted again for them. The job that lost them has to plan again.
func (b *Book) TakeOver(from Job, h Hold, now int64) {
	robbed := b.holds[from]
	if robbed == nil {
		b.Keep(h)
		return
	}
	nodes := h.Nodes()
	for _, v := range robbed.Victims {
		if nodes[v.RoomOn()] {
			h.Victims = append(h.Victims, v)
		}
	}
	b.Fail(from, now)
	b.Keep(h)
}
