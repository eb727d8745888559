// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing"
	"deviceshare/sharing/quota"
)

// Allowance is what a task may take of its queue and namespace. A nil *Allowance is that of a task
// that no limit concerns. Safe for concurrent use.
type Allowance struct {
	book *quota.Book
	ask  quota.Ask
	// least is what the task takes whichever devices it gets.
	least quota.Amounts
}

// Allowance returns what a task may take once the pods that are leaving, and some others, are gone;
// nil if no limit concerns it. A nil request is that of a task that asks for nothing.
func (l *Limits) Allowance(t *api.TaskInfo, req *sharing.PodRequest, gone ...*api.TaskInfo) *Allowance {
	if l == nil || req == nil {
		return nil
	}
	account := l.accountOf(l.queueOf(t), t.Pod)
	if !l.book.Limited(account) {
		return nil
	}
	w := &Allowance{book: l.book, least: quota.Asked(req, l.kinds)}
	w.ask = quota.Ask{Owner: l.Tasks.Owner(t), Account: account, Gone: ownersOf(gone)}
	return w
}

// joinAsks adds the least that the task takes to what others of its job ask for, those of an
// account as one, and returns it with what all of them count for.
func (w *Allowance) joinAsks(together []quota.Ask, joined quota.Account) ([]quota.Ask, quota.Account) {
	if len(together) == 0 {
		joined = w.ask.Account
	}
	for i := range together {
		if one := &together[i]; one.Account.Equal(w.ask.Account) {
			one.Owner, one.Amounts = w.ask.Owner, one.Amounts.Plus(w.least)
			return together, joined
		}
	}
	ask := w.ask
	ask.Amounts = w.least
	return append(together, ask), joined.Joined(w.ask.Account)
}

// AccountOf returns whose limits tasks of one job count for, any of them.
func (l *Limits) AccountOf(tasks []*api.TaskInfo) (joined quota.Account) {
	if l == nil {
		return joined
	}
	for i, t := range tasks {
		account := l.accountOf(l.queueOf(t), t.Pod)
		if i == 0 {
			joined = account
		}
		joined = joined.Joined(account)
	}
	return joined
}

// Lacks returns by how much tasks of one job would exceed each limit of their account together,
// once the pods that are leaving are gone; nil if no limit concerns them.
func (l *Limits) Lacks(tasks []*api.TaskInfo) []int64 {
	if l == nil {
		return nil
	}
	asks := make([]quota.Ask, 0, len(tasks))
	for _, t := range tasks {
		ask := quota.Ask{Owner: l.Tasks.Owner(t), Account: l.accountOf(l.queueOf(t), t.Pod)}
		if req := l.Tasks.RememberRequest(t); req != nil {
			ask.Amounts = quota.Asked(req, l.kinds)
		}
		asks = append(asks, ask)
	}
	return l.book.Lacks(l.AccountOf(tasks), asks...)
}

// Frees returns how much the end of a task frees of what each limit of an account is about.
func (l *Limits) Frees(t *api.TaskInfo, account quota.Account) []int64 {
	if l == nil {
		return nil
	}
	return l.book.Frees(sharing.Owner(t.Pod.UID), account)
}

// AllowanceNow returns what a task may take at once.
func (l *Limits) AllowanceNow(t *api.TaskInfo, req *sharing.PodRequest) *Allowance {
	w := l.Allowance(t, req)
	if w != nil {
		w.ask.Now = true
	}
	return w
}

func ownersOf(tasks []*api.TaskInfo) []sharing.Owner {
	owners := make([]sharing.Owner, 0, len(tasks))
	for _, t := range tasks {
		owners = append(owners, sharing.Owner(t.Pod.UID))
	}
	return owners
}

// ShortOf returns which limit amounts would exceed, nil if none.
func (w *Allowance) ShortOf(a quota.Amounts) *quota.Shortage {
	if w == nil {
		return nil
	}
	ask := w.ask
	ask.Amounts = a
	if short, refused := w.book.Check(&ask); refused {
		return &short
	}
	return nil
}

// Unavoidable returns which limit the task would exceed on any node, nil if it may fit on some.
func (w *Allowance) Unavoidable() *quota.Shortage {
	if w == nil {
		return nil
	}
	return w.ShortOf(w.least)
}

// MayEvictFor reports whether evictions help a task that the queue refuses what it would get on a
// node. Volcano asks whether the queue has room without naming a node, and is told of the least
// that the task takes. Where it takes more, Volcano would evict for a task that is refused again.
func (w *Allowance) MayEvictFor(short *quota.Shortage) bool { return short.AsksAsMuch(w.least) }

// MayEvictOn reports whether evictions on a node help a task that its devices have no room for: not
// if the least that it takes there is more than the queue has, see MayEvictFor.
func (w *Allowance) MayEvictOn(inv *sharing.Inventory, req *sharing.PodRequest) bool {
	if w == nil {
		return true
	}
	short := w.ShortOf(quota.Asked(req, quota.KindsOf(inv)))
	return short == nil || w.MayEvictFor(short)
}

// LargestCharge returns the device of a placement that counts most for a limit.
func LargestCharge(short *quota.Shortage, p *sharing.Placement, inv *sharing.Inventory) (worst sharing.DeviceID) {
	var most int64
	for i := range p.Containers {
		for _, s := range p.Containers[i].Shares {
			one := sharing.Placement{Neighbours: p.Neighbours, Containers: []sharing.ContainerShares{{Shares: []sharing.Share{s}}}}
			if n := short.Of(quota.Held(&one, inv)); n > most {
				worst, most = s.Device, n
			}
		}
	}
	return worst
}
