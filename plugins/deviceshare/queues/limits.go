// SPDX-License-Identifier: Apache-2.0

package queues

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

// Memory is what outlives a session. The zero value is empty.
type Memory struct {
	charges charges
	doubts  doubts
	// queues are those of pods that hold devices, as of the last session.
	queues map[sharing.Owner]string
}

// Tasks is what the limits ask the session about its tasks.
type Tasks interface {
	// Request returns what a task asks for, nil if it asks for no devices or no node can serve it.
	// Safe for concurrent use.
	Request(*api.TaskInfo) *sharing.PodRequest
	// RememberRequest is Request for a task that will be asked about again.
	RememberRequest(*api.TaskInfo) *sharing.PodRequest
	// Given returns what this session gave to a pod, and the node; "" if it gave nothing.
	Given(sharing.Owner) (node string, placement *sharing.Placement)
}

// Snapshot is what a session begins with.
type Snapshot struct {
	Nodes    map[string]*nodes.Node
	Infos    map[string]*api.NodeInfo
	Jobs     map[api.JobID]*api.JobInfo
	Settings *nodes.Settings
	Tasks    Tasks
}

// Limits are the limits of queues in one session. A nil *Limits limits nobody.
type Limits struct {
	Snapshot
	memory *Memory
	book   *quota.Book
	kinds  quota.Kinds
	// refused is why Volcano was told last that a queue may not take a task.
	refused map[api.TaskID]quota.Shortage
	// evicted are the pods that this session evicts.
	evicted map[sharing.Owner]struct{}
	// claims are pods that wait until pods of their queue have ended, and for which room is kept.
	claims []sharing.Owner
}

// Open adds up what the pods of all queues take; nil if no queue has a limit, so that nobody has to
// count. What pods take is what the ledgers and the snapshot say.
func (m *Memory) Open(queues []quota.Queue, s Snapshot) *Limits {
	if !slices.ContainsFunc(queues, hasLimits) {
		m.queues = nil
		return nil
	}
	devices := m.charges.updateFromNodes(s.Nodes)
	m.doubts.total = devices.all
	l := &Limits{
		Snapshot: s, memory: m,
		book: quota.NewBook(quota.NewHierarchy(queues, devices.total)), kinds: devices.kinds,
		refused: map[api.TaskID]quota.Shortage{}, evicted: map[sharing.Owner]struct{}{},
	}
	queueOf := map[sharing.Owner]string{}
	for _, job := range s.Jobs {
		for status, tasks := range job.TaskStatusIndex {
			tenure, mayHold := tenureOf(status)
			if !mayHold {
				continue
			}
			for _, t := range tasks {
				if tenure == quota.Leaves && s.Nodes[t.NodeName] == nil {
					continue // it never had a node, or that is gone with its devices
				}
				if a := l.takenAmounts(t); len(a) > 0 {
					owner := sharing.Owner(t.Pod.UID)
					queueOf[owner] = string(job.Queue)
					l.book.Put(owner, string(job.Queue), a, tenure)
				}
			}
		}
	}
	l.countHolders(queueOf)
	m.queues = queueOf
	return l
}

// countHolders counts pods that hold devices and belong to no job of the session, because their pod
// group was deleted or Volcano has lost sight of them. They count for the queue that they belonged
// to in the last session, else for the one that they name.
func (l *Limits) countHolders(queueOf map[sharing.Owner]string) {
	for name, c := range l.memory.charges.nodes {
		for owner, a := range c.owners {
			if _, counted := queueOf[owner]; counted || len(a) == 0 {
				continue
			}
			queue, known := l.memory.queues[owner]
			if !known {
				queue = queueNamedBy(l.Infos[name], owner)
			}
			if queue != "" {
				queueOf[owner] = queue
				l.book.Put(owner, queue, a, quota.Stays)
			}
		}
	}
}

// hasLimits reports whether a queue was given a limit of devices.
func hasLimits(q quota.Queue) bool { return len(q.Capability)+len(q.Guarantee)+len(q.Deserved) > 0 }

// takenAmounts returns what a task takes: what it holds, or, as long as that is not known, the
// least that it may hold.
func (l *Limits) takenAmounts(t *api.TaskInfo) quota.Amounts {
	owner := sharing.Owner(t.Pod.UID)
	if n := l.Nodes[t.NodeName]; n != nil && n.Ledger != nil {
		if node, placement := l.Tasks.Given(owner); node == n.Name {
			return quota.Held(placement, n.Inventory)
		}
		if a, known := l.memory.charges.ownerAmounts(n, owner); known {
			return a
		}
	}
	if !corepod.Asks(t.Pod, l.Settings.Names) {
		return nil
	}
	if req := l.Tasks.Request(t); req != nil {
		return quota.Asked(req, l.kinds)
	}
	return nil
}

// Charge notes what a task takes after Volcano put it on a node, evicted it, or undid that.
func (l *Limits) Charge(t *api.TaskInfo, tenure quota.Tenure) {
	if l == nil {
		return
	}
	owner := sharing.Owner(t.Pod.UID)
	delete(l.evicted, owner)
	if tenure == quota.Leaves {
		l.evicted[owner] = struct{}{}
	}
	l.book.Put(owner, l.queueOf(t), l.takenAmounts(t), tenure)
}

// Uncharge notes that a task takes nothing after Volcano took it off a node.
func (l *Limits) Uncharge(t *api.TaskInfo) {
	if l != nil {
		l.book.Drop(sharing.Owner(t.Pod.UID))
	}
}

// Takes returns what a pod is counted with.
func (l *Limits) Takes(owner sharing.Owner) quota.Amounts { return l.book.Takes(owner) }

// queueOf returns the queue of a task, "" if its job is not known.
func (l *Limits) queueOf(t *api.TaskInfo) string {
	if j, ok := l.Jobs[t.Job]; ok {
		return string(j.Queue)
	}
	return ""
}

// Allows answers Volcano whether a queue may take a task, before a node is chosen. What pods that
// are leaving still hold does not count here, so that the task can be promised a node that they
// leave. It counts on each node that would take the task at once.
func (l *Limits) Allows(t *api.TaskInfo) bool {
	w := l.Allowance(t, l.Tasks.RememberRequest(t))
	if short := w.Unavoidable(); short != nil {
		l.refused[t.UID] = *short
		return false
	}
	delete(l.refused, t.UID)
	l.claimRoom(w)
	return true
}

// claimRoom keeps room for a task whose queue has room only when pods have ended: without it, tasks
// that come later would take the room as it becomes free. Evictions of this session make no claims,
// since they may be undone.
func (l *Limits) claimRoom(w *Allowance) {
	if w == nil || len(l.evicted) > 0 {
		return
	}
	now := *w
	now.ask.Now = true
	if now.Unavoidable() != nil {
		l.book.Put(w.ask.Owner, w.ask.Queue, w.least, quota.Arrives)
		l.claims = append(l.claims, w.ask.Owner)
	}
}

// DropClaims gives up the room that is kept. Tasks with a node keep what they were promised there.
func (l *Limits) DropClaims() {
	if l == nil {
		return
	}
	for _, owner := range l.claims {
		if node, _ := l.Tasks.Given(owner); node == "" {
			l.book.Drop(owner)
		}
	}
	l.claims = nil
}

// MayReclaimFor answers Volcano whether a queue may evict pods of other queues for a task: not if
// it could not take the task even if all pods of other queues left, nor if it does not deserve that
// much, nor if it only waits until pods have ended.
func (l *Limits) MayReclaimFor(t *api.TaskInfo) bool {
	req := l.Tasks.RememberRequest(t)
	if req == nil {
		return true
	}
	ask := quota.Ask{
		Owner: sharing.Owner(t.Pod.UID), Queue: l.queueOf(t), Amounts: quota.Asked(req, l.kinds), Alone: true,
	}
	_, refused := l.book.Check(&ask)
	_, beyond := l.book.Deserves(&ask)
	return !refused && !beyond && !l.AwaitsLeaving(t, req)
}

// AwaitsLeaving reports whether a task only waits until pods have ended that were leaving before
// this session: evicting others as well would help nobody.
func (l *Limits) AwaitsLeaving(t *api.TaskInfo, req *sharing.PodRequest) bool {
	w := l.AllowanceNow(t, req)
	if w == nil {
		return false
	}
	w.ask.Gone = slices.AppendSeq(w.ask.Gone, maps.Keys(l.evicted))
	short := w.Unavoidable()
	return short != nil && short.Leaving > 0
}

// GivenUp returns the candidates that their queues do not keep when a task of another queue wants
// their room, in the order in which they are given. A queue keeps what it is guaranteed, and what
// it deserves from tasks that ask for devices.
func (l *Limits) GivenUp(candidates []*api.TaskInfo, guaranteedOnly bool) []*api.TaskInfo {
	var left []*api.TaskInfo
	var gone []sharing.Owner
	for _, c := range candidates {
		if owner := sharing.Owner(c.Pod.UID); !l.book.Keeps(owner, gone, guaranteedOnly) {
			left = append(left, c)
			gone = append(gone, owner)
		}
	}
	return left
}

// Refused returns why Volcano was told last, in this session, that a queue may not take a task:
// with members of its own gang that were taken back since.
func (l *Limits) Refused(t *api.TaskInfo) (quota.Shortage, bool) {
	if l == nil {
		return quota.Shortage{}, false
	}
	short, refused := l.refused[t.UID]
	return short, refused
}

// JobShortage returns the limit of a queue that keeps a waiting job from having as many tasks as it
// needs at least, also before Volcano has tried any of them; false if no queue does. Which of its
// tasks run is not known: the smallest ones count. It changes nothing.
func (l *Limits) JobShortage(job *api.JobInfo) (quota.Shortage, bool) {
	if l == nil {
		return quota.Shortage{}, false
	}
	pending := slices.SortedFunc(maps.Values(job.TaskStatusIndex[api.Pending]), func(x, y *api.TaskInfo) int {
		return cmp.Or(cmp.Compare(l.askedMemory(x), l.askedMemory(y)), cmp.Compare(x.Name, y.Name))
	})
	missing := int(job.MinAvailable) - int(job.ReadyTaskNum())
	var sum quota.Amounts
	for _, t := range pending[:min(max(missing, 1), len(pending))] {
		w := l.AllowanceNow(t, l.Tasks.Request(t))
		if w == nil {
			continue
		}
		sum = sum.Plus(w.least)
		if short := w.ShortOf(sum); short != nil {
			return *short, true
		}
	}
	return quota.Shortage{}, false
}

// askedMemory is the least memory that a task takes.
func (l *Limits) askedMemory(t *api.TaskInfo) int64 {
	var sum int64
	if req := l.Tasks.Request(t); req != nil {
		for _, part := range quota.Asked(req, l.kinds) {
			sum += part.Memory
		}
	}
	return sum
}
