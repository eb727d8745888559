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
	account Account
	amounts Amounts
	tenure  Tenure
}

// Book is which pod takes what, and whose limits it counts for. What a pod was put down with is
// kept, so that taking it out again leaves nothing. Reading from many goroutines is safe while
// nobody writes.
type Book struct {
	hierarchy *Hierarchy
	entries   map[sharing.Owner]entry
	// sums are what the pods take that count for a holder of limits, by tenure.
	sums map[string]*[tenures]Amounts
}

// NewBook returns the book in which nobody takes anything.
func NewBook(h *Hierarchy) *Book {
	return &Book{hierarchy: h, entries: map[sharing.Owner]entry{}, sums: map[string]*[tenures]Amounts{}}
}

// Account returns the account of pods of a queue for which quotas of their namespace hold, these by
// their keys.
func (b *Book) Account(queue string, quotas ...string) Account {
	return b.hierarchy.Account(queue, quotas...)
}

// Put notes what a pod takes, in place of what was noted of it before.
func (b *Book) Put(o sharing.Owner, account Account, a Amounts, tenure Tenure) {
	b.Drop(o)
	b.entries[o] = entry{account: account, amounts: a, tenure: tenure}
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
	for _, name := range e.account.holders {
		if b.sums[name] == nil {
			b.sums[name] = &[tenures]Amounts{}
		}
		sum := &b.sums[name][e.tenure]
		*sum = sum.addSigned(e.amounts, sign)
	}
}

// Takes returns what a pod was put down with.
func (b *Book) Takes(o sharing.Owner) Amounts { return b.entries[o].amounts }

// usedBy returns what the pods that count for a holder take of what a limit is about, without some
// pods: now, by pods that stay and pods that leave, or else later, by pods that stay and pods that
// arrive.
func (b *Book) usedBy(holder string, l *Limit, now bool, gone []sharing.Owner) int64 {
	without := Leaves
	if now {
		without = Arrives
	}
	var used int64
	if sums := b.sums[holder]; sums != nil {
		for tenure := range tenures {
			if tenure != without {
				used += sums[tenure].SumFor(l)
			}
		}
	}
	for i, o := range gone {
		e, known := b.entries[o]
		if known && e.tenure != without && !slices.Contains(gone[:i], o) && e.account.countsFor(holder) {
			used -= e.amounts.SumFor(l)
		}
	}
	return used
}

// heldByLeaving returns what pods that count for a holder, and leave, have of what a limit is
// about.
func (b *Book) heldByLeaving(holder string, l *Limit) int64 {
	if sums := b.sums[holder]; sums != nil {
		return sums[Leaves].SumFor(l)
	}
	return 0
}

// Ask is whether a pod may take something.
type Ask struct {
	Owner   sharing.Owner
	Account Account
	Amounts Amounts
	// Now says that the pod gets the amounts at once. Otherwise it waits until the pods that leave
	// have ended, and what those have does not count.
	Now bool
	// Gone are pods that count as if they had left.
	Gone []sharing.Owner
	// Alone counts, of the queues above, only what the pod's own queue takes: could the pod have
	// the amounts if pods of all other queues left? A quota of its namespace counts in full.
	Alone bool
}

// Limited reports whether a limit may refuse pods of an account anything.
func (b *Book) Limited(a Account) bool { return b.hierarchy.hasBounds(a) }

// Check returns the limit that a pod would exceed; false if it may have what it asks for. Of
// several it is the one nearest to the pod's queue; a limit that is exceeded only until others have
// ended comes last. What is noted of the pod already counts once. A pod that takes nothing of what
// a limit is about is not refused by it.
func (b *Book) Check(ask *Ask) (Shortage, bool) {
	return b.CheckTogether(ask.Account, *ask)
}

// CheckTogether is Check for pods that start together. Each asks those limits of the account that
// it counts for. They are of one mind about Now and Alone.
func (b *Book) CheckTogether(a Account, asks ...Ask) (Shortage, bool) {
	gone := ownersGone(asks)
	if short, refused := b.findShortage(a, asks, false, gone); refused || !asks[0].Now {
		return short, refused
	}
	return b.findShortage(a, asks, true, gone)
}

// ownersGone returns who does not count: those that ask, and those that they name.
func ownersGone(asks []Ask) []sharing.Owner {
	gone := make([]sharing.Owner, 0, len(asks)+len(asks[0].Gone))
	for i := range asks {
		gone = append(append(gone, asks[i].Owner), asks[i].Gone...)
	}
	return gone
}

// findShortage is CheckTogether for one moment: now, or else later.
func (b *Book) findShortage(a Account, asks []Ask, now bool, gone []sharing.Owner) (Shortage, bool) {
	for _, holder := range a.holders {
		counted := holder
		if asks[0].Alone && !isQuota(holder) {
			counted = a.queue
		}
		for i := range b.hierarchy.bounds[holder] {
			l := &b.hierarchy.bounds[holder][i]
			asked := amountAsked(asks, holder, &l.Limit)
			if asked == 0 {
				continue
			}
			if used := b.usedBy(counted, &l.Limit, now, gone); used+asked > l.Amount {
				short := Shortage{Limit: l.Limit, Reserved: l.reserved, Used: used, Asked: asked}
				short.setHolder(holder)
				if now {
					short.Leaving = b.heldByLeaving(counted, &l.Limit)
				}
				return short, true
			}
		}
	}
	return Shortage{}, false
}

// amountAsked is what those pods ask for of what a limit is about that count for its holder.
func amountAsked(asks []Ask, holder string, l *Limit) (sum int64) {
	for i := range asks {
		if asks[i].Account.countsFor(holder) {
			sum += asks[i].Amounts.SumFor(l)
		}
	}
	return sum
}

// Lacks returns by how much each limit of an account would be exceeded if pods got what they ask
// for later, 0 where it would not. Each asks those of the limits that it counts for.
func (b *Book) Lacks(a Account, asks ...Ask) (lacks []int64) {
	gone := ownersGone(asks)
	for _, holder := range a.holders {
		for i := range b.hierarchy.bounds[holder] {
			l, lack := &b.hierarchy.bounds[holder][i], int64(0)
			if asked := amountAsked(asks, holder, &l.Limit); asked > 0 {
				lack = max(0, b.usedBy(holder, &l.Limit, false, gone)+asked-l.Amount)
			}
			lacks = append(lacks, lack)
		}
	}
	return lacks
}

// Frees returns what the end of a pod frees of what each limit of an account is about, in the order
// of Lacks.
func (b *Book) Frees(o sharing.Owner, a Account) (frees []int64) {
	e := b.entries[o]
	for _, holder := range a.holders {
		for i := range b.hierarchy.bounds[holder] {
			freed := int64(0)
			if e.tenure != Leaves && e.account.countsFor(holder) {
				freed = e.amounts.SumFor(&b.hierarchy.bounds[holder][i].Limit)
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
	q, known := b.hierarchy.queues[ask.Account.queue]
	if !known {
		return Shortage{}, false
	}
	for i := range q.Deserved {
		l := q.Deserved[i]
		l.Amount = max(l.Amount, amountOf(q.Guarantee, &l))
		asked := ask.Amounts.SumFor(&l)
		if used := b.usedBy(q.Name, &l, false, append([]sharing.Owner{ask.Owner}, ask.Gone...)); asked > 0 && used+asked > l.Amount {
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
	q, exists := b.hierarchy.queues[e.account.queue]
	if !known || !exists {
		return false
	}
	for i := range q.Guarantee {
		l := &q.Guarantee[i]
		if takes := e.amounts.SumFor(l); takes > 0 && b.usedBy(q.Name, l, false, gone)-takes < l.Amount {
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
		if b.usedBy(q.Name, l, false, gone) > l.Amount {
			return false
		}
		deserved = true
	}
	return deserved
}
