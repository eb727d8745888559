// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"

	"deviceshare/sharing"
)

// entry is what one pod takes.
type entry struct {
	queue   string
	amounts Amounts
}

// Book is which pod takes what of which queue. What a pod was put down with is kept, so that
// taking it out again leaves nothing. Reading from many goroutines is safe while nobody writes.
type Book struct {
	hierarchy *Hierarchy
	entries   map[sharing.Owner]entry
	// sums are what the pods of a queue and of those below it take.
	sums map[string]Amounts
}

// NewBook returns the book in which nobody takes anything.
func NewBook(h *Hierarchy) *Book {
	return &Book{hierarchy: h, entries: map[sharing.Owner]entry{}, sums: map[string]Amounts{}}
}

// Put notes what a pod takes, in place of what was noted of it before.
func (b *Book) Put(o sharing.Owner, queue string, a Amounts) {
	b.Drop(o)
	b.entries[o] = entry{queue: queue, amounts: a}
	b.add(queue, a, 1)
}

// Drop forgets a pod. A pod that is not in the book is no mistake.
func (b *Book) Drop(o sharing.Owner) {
	if e, known := b.entries[o]; known {
		delete(b.entries, o)
		b.add(e.queue, e.amounts, -1)
	}
}

func (b *Book) add(queue string, a Amounts, sign int64) {
	for _, name := range b.hierarchy.above(queue) {
		b.sums[name] = b.sums[name].add(a, sign)
	}
}

// Takes returns what a pod was put down with.
func (b *Book) Takes(o sharing.Owner) Amounts { return b.entries[o].amounts }

// used returns what a queue and those below it take of what a limit is about, without some pods.
func (b *Book) used(queue string, l *Limit, gone []sharing.Owner) int64 {
	used := b.sums[queue].of(l)
	for i, o := range gone {
		e, known := b.entries[o]
		if known && !slices.Contains(gone[:i], o) && slices.Contains(b.hierarchy.above(e.queue), queue) {
			used -= e.amounts.of(l)
		}
	}
	return used
}

// Ask is whether a pod may take something of a queue.
type Ask struct {
	Owner   sharing.Owner
	Queue   string
	Amounts Amounts
	// Gone are pods that count as if they had left.
	Gone []sharing.Owner
	// Alone counts, of the queues above, only what the pod's own queue takes: could the pod have
	// the amounts if pods of all other queues left?
	Alone bool
}

// Limited reports whether a limit may refuse pods of a queue anything.
func (b *Book) Limited(queue string) bool { return b.hierarchy.limits(queue) }

// Check returns the limit that a pod would exceed; false if it may have what it asks for. Of
// several it is the one nearest to the pod's queue. What is noted of the pod already counts once.
// A pod that takes nothing of what a limit is about is not refused by it.
func (b *Book) Check(ask *Ask) (Shortage, bool) {
	gone := append([]sharing.Owner{ask.Owner}, ask.Gone...)
	for _, name := range b.hierarchy.above(ask.Queue) {
		counted := name
		if ask.Alone {
			counted = ask.Queue
		}
		for i := range b.hierarchy.bounds[name] {
			l := &b.hierarchy.bounds[name][i]
			asked := ask.Amounts.of(&l.Limit)
			if asked == 0 {
				continue
			}
			if used := b.used(counted, &l.Limit, gone); used+asked > l.Amount {
				return Shortage{Queue: name, Limit: l.Limit, Reserved: l.reserved, Used: used, Asked: asked}, true
			}
		}
	}
	return Shortage{}, false
}

// Deserves returns the limit by which a queue does not deserve what a pod asks for: it must not
// take that from other queues. A queue deserves what it is guaranteed, and whatever it has no
// number for.
func (b *Book) Deserves(ask *Ask) (Shortage, bool) {
	q, known := b.hierarchy.queues[ask.Queue]
	if !known {
		return Shortage{}, false
	}
	for i := range q.Deserved {
		l := q.Deserved[i]
		l.Amount = max(l.Amount, amountOf(q.Guarantee, &l))
		asked := ask.Amounts.of(&l)
		if used := b.used(q.Name, &l, append([]sharing.Owner{ask.Owner}, ask.Gone...)); asked > 0 && used+asked > l.Amount {
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
		if takes := e.amounts.of(l); takes > 0 && b.used(q.Name, l, gone)-takes < l.Amount {
			return true
		}
	}
	if guaranteedOnly {
		return false
	}
	deserved := false
	for i := range q.Deserved {
		l := &q.Deserved[i]
		if e.amounts.of(l) == 0 {
			continue
		}
		if b.used(q.Name, l, gone) > l.Amount {
			return false
		}
		deserved = true
	}
	return deserved
}
