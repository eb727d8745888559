// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"

	"deviceshare/sharing"
)

// Tenure is when a pod takes its amounts.
type Tenure uint8

const (
	// Stays: the pod has them, and nobody has asked it to end.
	Stays Tenure = iota
	// Leaves: the pod has them until it has ended.
	Leaves
	// Arrives: the pod gets them when others have ended.
	Arrives
	tenures
)

// entry is what one pod takes.
type entry struct {
	queue   string
	amounts Amounts
	tenure  Tenure
}

// Book is which pod takes what of which queue. What a pod was put down with is kept, so that
// taking it out again leaves nothing. Reading from many goroutines is safe while nobody writes.
type Book struct {
	hierarchy *Hierarchy
	entries   map[sharing.Owner]entry
	// sums are what the pods of a queue and of those below it take, by tenure.
	sums map[string]*[tenures]Amounts
}

// NewBook returns the book in which nobody takes anything.
func NewBook(h *Hierarchy) *Book {
	return &Book{hierarchy: h, entries: map[sharing.Owner]entry{}, sums: map[string]*[tenures]Amounts{}}
}

// Put notes what a pod takes, in place of what was noted of it before.
func (b *Book) Put(o sharing.Owner, queue string, a Amounts, tenure Tenure) {
	b.Drop(o)
	b.entries[o] = entry{queue: queue, amounts: a, tenure: tenure}
	b.adjustSums(b.entries[o], 1)
}

// Drop forgets a pod. A pod that is not in the book is no mistake.
func (b *Book) Drop(o sharing.Owner) {
	if e, known := b.entries[o]; known {
		delete(b.entries, o)
		b.adjustSums(e, -1)
	}
}

func (b *Book) adjustSums(e entry, sign int64) {
	for _, name := range b.hierarchy.Chain(e.queue) {
		if b.sums[name] == nil {
			b.sums[name] = &[tenures]Amounts{}
		}
		sum := &b.sums[name][e.tenure]
		*sum = sum.addSigned(e.amounts, sign)
	}
}

// Takes returns what a pod was put down with.
func (b *Book) Takes(o sharing.Owner) Amounts { return b.entries[o].amounts }

// usedByQueue returns what a queue and those below it take of what a limit is about, without some
// pods: now, by pods that stay and pods that leave, or else later, by pods that stay and pods that
// arrive.
func (b *Book) usedByQueue(queue string, l *Limit, now bool, gone []sharing.Owner) int64 {
	without := Leaves
	if now {
		without = Arrives
	}
	var used int64
	if sums := b.sums[queue]; sums != nil {
		for tenure := range tenures {
			if tenure != without {
				used += sums[tenure].SumFor(l)
			}
		}
	}
	for i, o := range gone {
		e, known := b.entries[o]
		if known && e.tenure != without && !slices.Contains(gone[:i], o) && slices.Contains(b.hierarchy.Chain(e.queue), queue) {
			used -= e.amounts.SumFor(l)
		}
	}
	return used
}

// heldByLeaving returns what pods that leave a queue, or one below it, have of what a limit is
// about.
func (b *Book) heldByLeaving(queue string, l *Limit) int64 {
	if sums := b.sums[queue]; sums != nil {
		return sums[Leaves].SumFor(l)
	}
	return 0
}

// Ask is whether a pod may take something of a queue.
type Ask struct {
	Owner   sharing.Owner
	Queue   string
	Amounts Amounts
	// Now says that the pod gets the amounts at once. Otherwise it waits until the pods that leave
	// have ended, and what those have does not count.
	Now bool
	// Gone are pods that count as if they had left.
	Gone []sharing.Owner
	// Alone counts, of the queues above, only what the pod's own queue takes: could the pod have
	// the amounts if pods of all other queues left?
	Alone bool
}

// Limited reports whether a limit may refuse pods of a queue anything.
func (b *Book) Limited(queue string) bool { return b.hierarchy.hasBounds(queue) }

// Check returns the limit that a pod would exceed; false if it may have what it asks for. Of
// several it is the one nearest to the pod's queue; a limit that is exceeded only until others have
// ended comes last. What is noted of the pod already counts once. A pod that takes nothing of what
// a limit is about is not refused by it.
func (b *Book) Check(ask *Ask) (Shortage, bool) {
	gone := append([]sharing.Owner{ask.Owner}, ask.Gone...)
	if short, refused := b.findShortage(ask, false, gone); refused || !ask.Now {
		return short, refused
	}
	return b.findShortage(ask, true, gone)
}

// findShortage is Check for one moment: now, or else later.
func (b *Book) findShortage(ask *Ask, now bool, gone []sharing.Owner) (Shortage, bool) {
	for _, name := range b.hierarchy.Chain(ask.Queue) {
		counted := name
		if ask.Alone {
			counted = ask.Queue
		}
		for i := range b.hierarchy.bounds[name] {
			l := &b.hierarchy.bounds[name][i]
			asked := ask.Amounts.SumFor(&l.Limit)
			if asked == 0 {
				continue
			}
			if used := b.usedByQueue(counted, &l.Limit, now, gone); used+asked > l.Amount {
				short := Shortage{Queue: name, Limit: l.Limit, Reserved: l.reserved, Used: used, Asked: asked}
				if now {
					short.Leaving = b.heldByLeaving(counted, &l.Limit)
				}
				return short, true
			}
		}
	}
	return Shortage{}, false
}

// Lacks returns by how much each limit would be exceeded if pods got what is asked for later, 0
// where it would not: the limits of the queue, then those of the queues above.
func (b *Book) Lacks(ask *Ask) (lacks []int64) {
	gone := append([]sharing.Owner{ask.Owner}, ask.Gone...)
	for _, name := range b.hierarchy.Chain(ask.Queue) {
		for i := range b.hierarchy.bounds[name] {
			l := &b.hierarchy.bounds[name][i]
			asked := ask.Amounts.SumFor(&l.Limit)
			if asked == 0 {
				lacks = append(lacks, 0)
				continue
			}
			lacks = append(lacks, max(0, b.usedByQueue(name, &l.Limit, false, gone)+asked-l.Amount))
		}
	}
	return lacks
}

// Frees returns what the end of a pod frees of what each limit is about, in the order of Lacks for
// a queue.
func (b *Book) Frees(o sharing.Owner, queue string) (frees []int64) {
	e := b.entries[o]
	above := b.hierarchy.Chain(e.queue)
	for _, name := range b.hierarchy.Chain(queue) {
		for i := range b.hierarchy.bounds[name] {
			freed := int64(0)
			if e.tenure != Leaves && slices.Contains(above, name) {
				freed = e.amounts.SumFor(&b.hierarchy.bounds[name][i].Limit)
			}
			frees = append(frees, freed)
		}
	}
	return frees
}

// Deserves returns the limit by which a queue does not deserve what a pod asks for: it must not
// take that from other queues. A queue deserves what it is guaranteed, and whatever it has no
// number for. Pods that leave do not count: they are no reason to leave other queues alone.
func (b *Book) Deserves(ask *Ask) (Shortage, bool) {
	q, known := b.hierarchy.queues[ask.Queue]
	if !known {
		return Shortage{}, false
	}
	for i := range q.Deserved {
		l := q.Deserved[i]
		l.Amount = max(l.Amount, amountOf(q.Guarantee, &l))
		asked := ask.Amounts.SumFor(&l)
		if used := b.usedByQueue(q.Name, &l, false, append([]sharing.Owner{ask.Owner}, ask.Gone...)); asked > 0 && used+asked > l.Amount {
			return Shortage{Queue: q.Name, Limit: l, Used: used, Asked: asked}, true
		}
	}
	return Shortage{}, false
}

// Keeps reports whether a pod must be left to its queue when others want it, with some pods gone
// already: because the queue would have less than it is guaranteed, or, unless only that counts,
// has no more than it deserves of anything that the pod takes.
func (b *Book) Keeps(o sharing.Owner, gone []sharing.Owner, guaranteedOnly bool) bool {
	e, known := b.entries[o]
	q, exists := b.hierarchy.queues[e.queue]
	if !known || !exists {
		return false
	}
	for i := range q.Guarantee {
		l := &q.Guarantee[i]
		if takes := e.amounts.SumFor(l); takes > 0 && b.usedByQueue(q.Name, l, false, gone)-takes < l.Amount {
			return true
		}
	}
	if guaranteedOnly {
		return false
	}
	deserved := false
	for i := range q.Deserved {
		l := &q.Deserved[i]
		if e.amounts.SumFor(l) == 0 {
			continue
		}
		if b.usedByQueue(q.Name, l, false, gone) > l.Amount {
			return false
		}
		deserved = true
	}
	return deserved
}
