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

// quotas is what a session knows of queues that have limits of device memory or compute. The
// session goroutine writes the book when tasks come and go, and never while workers run.
type quotas struct {
	book  *quota.Book
	kinds quota.Kinds
	// refused is why Volcano was told last that a queue may not take a task.
	refused map[api.TaskID]quota.Shortage
}

// openQuotas adds up what the pods of all queues take; nil if no queue has a limit, so that
// nobody has to count. Nothing of it outlives the session: what pods take is what the ledgers
// and the snapshot say.
func (p *Plugin) openQuotas(queues []quota.Queue) *quotas {
	if p.off != nil || !slices.ContainsFunc(queues, hasLimits) {
		return nil
	}
	devices := p.store.charges.follow(p.nodes)
	q := &quotas{
		book: quota.NewBook(quota.NewHierarchy(queues, devices.total)), kinds: devices.kinds,
		refused: map[api.TaskID]quota.Shortage{},
	}
	for _, job := range p.jobs {
		for status, tasks := range job.TaskStatusIndex {
			if !api.AllocatedStatus(status) {
				continue
			}
			for _, t := range tasks {
				if a := p.taken(q.kinds, t); len(a) > 0 {
					q.book.Put(sharing.Owner(t.Pod.UID), string(job.Queue), a)
				}
			}
		}
	}
	return q
}

// hasLimits reports whether a queue was given a limit of device memory or compute.
func hasLimits(q quota.Queue) bool { return len(q.Capability)+len(q.Guarantee)+len(q.Deserved) > 0 }

// taken returns what a task takes: what it holds, or, as long as that is not known, the least
// that it may hold.
func (p *Plugin) taken(kinds quota.Kinds, t *api.TaskInfo) quota.Amounts {
	owner := sharing.Owner(t.Pod.UID)
	if n := p.nodes[t.NodeName]; n != nil && n.Ledger != nil {
		if r, ok := p.overlay.placed[owner]; ok && r.node == n.Name {
			return quota.Held(&r.placement, n.Inventory)
		}
		if a, known := p.store.charges.of(n, owner); known {
			return a
		}
	}
	if !corepod.Asks(t.Pod, p.settings.Names) {
		return nil
	}
	if a := p.ask(t); a != nil && a.mistakes == nil {
		return quota.Asked(&a.request, kinds)
	}
	return nil
}

// follow notes what a task takes after Volcano put it on a node, or nothing after Volcano took it
// off. Like Volcano, it counts nothing for pods that are leaving.
func (p *Plugin) follow(t *api.TaskInfo, there bool) {
	if p.quota == nil {
		return
	}
	owner := sharing.Owner(t.Pod.UID)
	if !there {
		p.quota.book.Drop(owner)
		return
	}
	p.quota.book.Put(owner, p.queueOf(t), p.taken(p.quota.kinds, t))
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

// allowance returns what a task may take when some others are gone.
func (p *Plugin) allowance(t *api.TaskInfo, a *ask, gone ...*api.TaskInfo) *allowance {
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

// short returns which limit the task would exceed on any node, nil if it may fit on some.
func (w *allowance) short() *quota.Shortage {
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

// allocatable answers Volcano whether a queue may take a task, before a node is chosen.
func (p *Plugin) allocatable(t *api.TaskInfo) bool {
	if p.quota == nil {
		return true
	}
	if short := p.allowance(t, p.remember(t)).short(); short != nil {
		p.quota.refused[t.UID] = *short
		return false
	}
	delete(p.quota.refused, t.UID)
	return true
}

// preemptive answers Volcano whether a queue may evict pods of other queues for a task: not if it
// could not take the task even if all pods of other queues left, nor if it does not deserve that
// much.
func (p *Plugin) preemptive(t *api.TaskInfo) bool {
	a := p.remember(t)
	if p.quota == nil || a == nil || a.mistakes != nil || a.uncertain {
		return true
	}
	ask := quota.Ask{
		Owner: sharing.Owner(t.Pod.UID), Queue: p.queueOf(t), Amounts: quota.Asked(&a.request, p.quota.kinds), Alone: true,
	}
	_, refused := p.quota.book.Check(&ask)
	_, beyond := p.quota.book.Deserves(&ask)
	return !refused && !beyond
}

// givenUp returns the candidates that their queues do not keep when a task of another queue wants
// their room. A queue keeps what it is guaranteed, and what it deserves from tasks that ask for
// devices.
func (p *Plugin) givenUp(task *api.TaskInfo, candidates []*api.TaskInfo) []*api.TaskInfo {
	if p.quota == nil {
		return candidates
	}
	sorted := slices.SortedStableFunc(slices.Values(candidates), p.lowestFirst)
	guaranteedOnly := p.ask(task) == nil
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
	if short := p.allowance(t, p.ask(t)).short(); short != nil {
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
		w := p.allowance(t, p.ask(t))
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
	if a := p.ask(t); a != nil && a.mistakes == nil {
		for _, part := range quota.Asked(&a.request, p.quota.kinds) {
			sum += part.Memory
		}
	}
	return sum
}
