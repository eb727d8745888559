// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"cmp"
	"maps"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/quota"
)

// quotas is what a session knows of queues that have limits of devices. The session goroutine
// writes the book when tasks come and go, and never while workers run.
type quotas struct {
	book  *quota.Book
	kinds quota.Kinds
	// refused is why Volcano was told last that a queue may not take a task.
	refused map[api.TaskID]quota.Shortage
	// evicted are the pods that this session evicts.
	evicted map[sharing.Owner]struct{}
	// claims are pods that wait until pods of their queue have ended, and for which room is kept.
	claims []sharing.Owner
}

// openQuotas adds up what the pods of all queues take; nil if no queue has a limit, so that
// nobody has to count. What pods take is what the ledgers and the snapshot say.
func (p *Plugin) openQuotas(queues []quota.Queue) *quotas {
	if p.off != nil || !slices.ContainsFunc(queues, hasLimits) {
		p.store.queues = nil
		return nil
	}
	devices := p.store.charges.updateFromNodes(p.nodes)
	p.store.doubts.total = devices.all
	q := &quotas{
		book: quota.NewBook(quota.NewHierarchy(queues, devices.total)), kinds: devices.kinds,
		refused: map[api.TaskID]quota.Shortage{}, evicted: map[sharing.Owner]struct{}{},
	}
	queueOf := map[sharing.Owner]string{}
	for _, job := range p.jobs {
		for status, tasks := range job.TaskStatusIndex {
			tenure, mayHold := tenureOf(status)
			if !mayHold {
				continue
			}
			for _, t := range tasks {
				if tenure == quota.Leaves && p.nodes[t.NodeName] == nil {
					continue // it never had a node, or that is gone with its devices
				}
				if a := p.takenAmounts(q.kinds, t); len(a) > 0 {
					owner := sharing.Owner(t.Pod.UID)
					queueOf[owner] = string(job.Queue)
					q.book.Put(owner, string(job.Queue), a, tenure)
				}
			}
		}
	}
	p.countHolders(q, queueOf)
	p.store.queues = queueOf
	return q
}

// countHolders counts pods that hold devices and belong to no job of the session, because their pod
// group was deleted or Volcano has lost sight of them. They count for the queue that they belonged
// to in the last session, else for the one that they name.
func (p *Plugin) countHolders(q *quotas, queueOf map[sharing.Owner]string) {
	for name, c := range p.store.charges.nodes {
		for owner, a := range c.owners {
			if _, counted := queueOf[owner]; counted || len(a) == 0 {
				continue
			}
			queue, known := p.store.queues[owner]
			if !known {
				queue = queueNamedBy(p.infos[name], owner)
			}
			if queue != "" {
				queueOf[owner] = queue
				q.book.Put(owner, queue, a, quota.Stays)
			}
		}
	}
}

// hasLimits reports whether a queue was given a limit of devices.
func hasLimits(q quota.Queue) bool { return len(q.Capability)+len(q.Guarantee)+len(q.Deserved) > 0 }

// takenAmounts returns what a task takes: what it holds, or, as long as that is not known, the
// least that it may hold.
func (p *Plugin) takenAmounts(kinds quota.Kinds, t *api.TaskInfo) quota.Amounts {
	owner := sharing.Owner(t.Pod.UID)
	if n := p.nodes[t.NodeName]; n != nil && n.Ledger != nil {
		if r, ok := p.overlay.placed[owner]; ok && r.node == n.Name {
			return quota.Held(&r.placement, n.Inventory)
		}
		if a, known := p.store.charges.ownerAmounts(n, owner); known {
			return a
		}
	}
	if !corepod.Asks(t.Pod, p.settings.Names) {
		return nil
	}
	if a := p.askOf(t); a != nil && a.mistakes == nil {
		return quota.Asked(&a.request, kinds)
	}
	return nil
}

// chargeQueue notes what a task takes after Volcano put it on a node, evicted it, or undid that.
func (p *Plugin) chargeQueue(t *api.TaskInfo, tenure quota.Tenure) {
	if p.quota == nil {
		return
	}
	owner := sharing.Owner(t.Pod.UID)
	delete(p.quota.evicted, owner)
	if tenure == quota.Leaves {
		p.quota.evicted[owner] = struct{}{}
	}
	p.quota.book.Put(owner, p.queueOf(t), p.takenAmounts(p.quota.kinds, t), tenure)
}

// unchargeQueue notes that a task takes nothing after Volcano took it off a node.
func (p *Plugin) unchargeQueue(t *api.TaskInfo) {
	if p.quota != nil {
		p.quota.book.Drop(sharing.Owner(t.Pod.UID))
	}
}

// queueOf returns the queue of a task, "" if its job is not known.
func (p *Plugin) queueOf(t *api.TaskInfo) string {
	if j, ok := p.jobs[t.Job]; ok {
		return string(j.Queue)
	}
	return ""
}

// allowance is what a task may take of its queue. Nil is the allowance of a task that no limit
// concerns. Safe for concurrent use.
type allowance struct {
	book *quota.Book
	ask  quota.Ask
	// least is what the task takes whichever devices it gets.
	least quota.Amounts
}

// allowanceAfter returns what a task may take once the pods that are leaving, and some others, are
// gone.
func (p *Plugin) allowanceAfter(t *api.TaskInfo, a *ask, gone ...*api.TaskInfo) *allowance {
	if p.quota == nil || a == nil || a.mistakes != nil || a.uncertain {
		return nil
	}
	queue := p.queueOf(t)
	if !p.quota.book.Limited(queue) {
		return nil
	}
	w := &allowance{book: p.quota.book, least: quota.Asked(&a.request, p.quota.kinds)}
	w.ask = quota.Ask{Owner: sharing.Owner(t.Pod.UID), Queue: queue, Gone: ownersOf(gone)}
	return w
}

// allowanceNow returns what a task may take at once.
func (p *Plugin) allowanceNow(t *api.TaskInfo, a *ask) *allowance {
	w := p.allowanceAfter(t, a)
	if w != nil {
		w.ask.Now = true
	}
	return w
}

// allowanceOn returns what a task may take on a node, when Volcano uses the node for it: at once,
// or once others have left.
func (p *Plugin) allowanceOn(t *api.TaskInfo, a *ask, info *api.NodeInfo) *allowance {
	w := p.allowanceAfter(t, a)
	if w != nil {
		w.ask.Now = judgedNow(t, info)
	}
	return w
}

// awaitsLeaving reports whether a task only waits until pods have ended that were leaving before
// this session: evicting others as well would help nobody.
func (p *Plugin) awaitsLeaving(t *api.TaskInfo, a *ask) bool {
	w := p.allowanceNow(t, a)
	if w == nil {
		return false
	}
	w.ask.Gone = slices.AppendSeq(w.ask.Gone, maps.Keys(p.quota.evicted))
	short := w.unavoidableShortage()
	return short != nil && short.Leaving > 0
}

// ownersOf returns the pods of tasks.
func ownersOf(tasks []*api.TaskInfo) []sharing.Owner {
	owners := make([]sharing.Owner, 0, len(tasks))
	for _, t := range tasks {
		owners = append(owners, sharing.Owner(t.Pod.UID))
	}
	return owners
}

// shortOf returns which limit amounts would exceed, nil if none.
func (w *allowance) shortOf(a quota.Amounts) *quota.Shortage {
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

// unavoidableShortage returns which limit the task would exceed on any node, nil if it may fit on
// some.
func (w *allowance) unavoidableShortage() *quota.Shortage {
	if w == nil {
		return nil
	}
	return w.shortOf(w.least)
}

// mayEvictFor reports whether evictions help a task that the queue refuses what it would get on
// a node. Volcano asks whether the queue has room without naming a node, and is told of the least
// that the task takes. Where it takes more, Volcano would evict for a task that is refused again.
func (w *allowance) mayEvictFor(short *quota.Shortage) bool { return short.AsksAsMuch(w.least) }

// mayEvictOn reports whether evictions on a node help a task that its devices have no room for:
// not if the least that it takes there is more than the queue has, see mayEvictFor.
func (w *allowance) mayEvictOn(n *nodes.Node, req *sharing.PodRequest) bool {
	if w == nil {
		return true
	}
	short := w.shortOf(quota.Asked(req, quota.KindsOf(n.Inventory)))
	return short == nil || w.mayEvictFor(short)
}

// largestCharge returns the device of a placement that counts most for a limit, and is among the
// views.
func largestCharge(short *quota.Shortage, p *sharing.Placement, inv *sharing.Inventory) (worst sharing.DeviceID) {
	var most int64
	for i := range p.Containers {
		for _, s := range p.Containers[i].Shares {
			one := sharing.Placement{Containers: []sharing.ContainerShares{{Shares: []sharing.Share{s}}}}
			if n := short.Of(quota.Held(&one, inv)); n > most {
				worst, most = s.Device, n
			}
		}
	}
	return worst
}

// queueAllows answers Volcano whether a queue may take a task, before a node is chosen. What pods
// that are leaving still hold does not count here, so that the task can be promised a node that
// they leave. It counts on each node that would take the task at once.
func (p *Plugin) queueAllows(t *api.TaskInfo) bool {
	if p.quota == nil {
		return true
	}
	w := p.allowanceAfter(t, p.rememberAsk(t))
	if short := w.unavoidableShortage(); short != nil {
		p.quota.refused[t.UID] = *short
		return false
	}
	delete(p.quota.refused, t.UID)
	p.claimRoom(t, w)
	return true
}

// claimRoom keeps room for a task whose queue has room only when pods have ended: without it, tasks
// that come later would take the room as it becomes free. Evictions of this session make no claims,
// since they may be undone.
func (p *Plugin) claimRoom(t *api.TaskInfo, w *allowance) {
	if w == nil || len(p.quota.evicted) > 0 {
		return
	}
	now := *w
	now.ask.Now = true
	if now.unavoidableShortage() != nil {
		p.quota.book.Put(w.ask.Owner, w.ask.Queue, w.least, quota.Arrives)
		p.quota.claims = append(p.quota.claims, w.ask.Owner)
	}
}

// dropClaims gives up the room that is kept. Tasks with a node keep what they were promised there.
func (p *Plugin) dropClaims() {
	if p.quota == nil {
		return
	}
	for _, owner := range p.quota.claims {
		if _, placed := p.overlay.placed[owner]; !placed {
			p.quota.book.Drop(owner)
		}
	}
	p.quota.claims = nil
}

// mayReclaimFor answers Volcano whether a queue may evict pods of other queues for a task: not if
// it could not take the task even if all pods of other queues left, nor if it does not deserve that
// much, nor if it only waits until pods have ended.
func (p *Plugin) mayReclaimFor(t *api.TaskInfo) bool {
	a := p.rememberAsk(t)
	if p.quota == nil || a == nil || a.mistakes != nil || a.uncertain {
		return true
	}
	ask := quota.Ask{
		Owner: sharing.Owner(t.Pod.UID), Queue: p.queueOf(t), Amounts: quota.Asked(&a.request, p.quota.kinds), Alone: true,
	}
	_, refused := p.quota.book.Check(&ask)
	_, beyond := p.quota.book.Deserves(&ask)
	return !refused && !beyond && !p.awaitsLeaving(t, a)
}

// givenUp returns the candidates that their queues do not keep when a task of another queue wants
// their room. A queue keeps what it is guaranteed, and what it deserves from tasks that ask for
// devices.
func (p *Plugin) givenUp(task *api.TaskInfo, candidates []*api.TaskInfo) []*api.TaskInfo {
	if p.quota == nil {
		return candidates
	}
	sorted := slices.SortedStableFunc(slices.Values(candidates), p.lowestFirst)
	guaranteedOnly := p.askOf(task) == nil
	var left []*api.TaskInfo
	var gone []sharing.Owner
	for _, c := range sorted {
		if owner := sharing.Owner(c.Pod.UID); !p.quota.book.Keeps(owner, gone, guaranteedOnly) {
			left = append(left, c)
			gone = append(gone, owner)
		}
	}
	return left
}

// QuotaShortage returns the limit of a queue that keeps a waiting task from being allocated;
// false if no queue does, as far as is known without a node. It is what the task would exceed now,
// or else what it would have exceeded when Volcano asked last in this session: beside members of
// its own gang that were taken back since. Call it in the session goroutine, before the session is
// closed. It changes nothing.
func (p *Plugin) QuotaShortage(t *api.TaskInfo) (quota.Shortage, bool) {
	if p.quota == nil {
		return quota.Shortage{}, false
	}
	if short := p.allowanceNow(t, p.askOf(t)).unavoidableShortage(); short != nil {
		return *short, true
	}
	short, refused := p.quota.refused[t.UID]
	return short, refused
}

// JobQuotaShortage returns the limit of a queue that keeps a waiting job from having as many tasks
// as it needs at least, also before Volcano has tried any of them; false if no queue does. Which
// of its tasks run is not known: the smallest ones count. Otherwise it is like QuotaShortage.
func (p *Plugin) JobQuotaShortage(job *api.JobInfo) (quota.Shortage, bool) {
	if p.quota == nil {
		return quota.Shortage{}, false
	}
	pending := slices.SortedFunc(maps.Values(job.TaskStatusIndex[api.Pending]), func(x, y *api.TaskInfo) int {
		return cmp.Or(cmp.Compare(p.askedMemory(x), p.askedMemory(y)), cmp.Compare(x.Name, y.Name))
	})
	missing := int(job.MinAvailable) - int(job.ReadyTaskNum())
	var sum quota.Amounts
	for _, t := range pending[:min(max(missing, 1), len(pending))] {
		w := p.allowanceNow(t, p.askOf(t))
		if w == nil {
			continue
		}
		sum = sum.Plus(w.least)
		if short := w.shortOf(sum); short != nil {
			return *short, true
		}
	}
	return quota.Shortage{}, false
}

// askedMemory is the least memory that a task takes.
func (p *Plugin) askedMemory(t *api.TaskInfo) int64 {
	var sum int64
	if a := p.askOf(t); a != nil && a.mistakes == nil {
		for _, part := range quota.Asked(&a.request, p.quota.kinds) {
			sum += part.Memory
		}
	}
	return sum
}
