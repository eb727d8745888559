// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
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
	// holders are the pods that hold devices, as of the last session.
	holders map[sharing.Owner]holder
	// usage is what namespaces had of their limits then, nil if there were none.
	usage atomic.Pointer[[]quota.Usage]
}

// holder is a pod that holds devices, with its queue.
type holder struct {
	queue string
	pod   *corev1.Pod
}

// Tasks is what the limits ask the session about its tasks.
type Tasks interface {
	// Request returns what a task asks for, nil if it asks for no devices or no node can serve it.
	// Safe for concurrent use.
	Request(*api.TaskInfo) *sharing.PodRequest
	// RememberRequest is Request for a task that will be asked about again.
	RememberRequest(*api.TaskInfo) *sharing.PodRequest
	// Owner returns who holds what a task is given: its pod, or the claim of a pod that waits.
	Owner(*api.TaskInfo) sharing.Owner
	// Given returns what this session gave to an owner, and the node; "" if it gave nothing.
	Given(sharing.Owner) (node string, placement *sharing.Placement)
}

// Snapshot is what a session begins with.
type Snapshot struct {
	Nodes    map[string]*nodes.Node
	Infos    map[string]*api.NodeInfo
	Jobs     map[api.JobID]*api.JobInfo
	Settings *nodes.Settings
	Tasks    Tasks
	// Queues and Quotas have the limits. Of the quotas some may have none that can be read.
	Queues []quota.Queue
	Quotas []nodes.NamespaceQuota
}

// Limits are the limits of queues and namespaces in one session. A nil *Limits limits nobody.
type Limits struct {
	Snapshot
	// quotas are those of a namespace.
	quotas map[string][]nodes.NamespaceQuota
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

// Open adds up what the pods of all queues and namespaces take; nil if none of these has a limit,
// so that nobody has to count. What pods take is what the ledgers and the snapshot say.
func (m *Memory) Open(s Snapshot) *Limits {
	quotas, all := byNamespace(s.Quotas)
	if !slices.ContainsFunc(s.Queues, hasLimits) && len(quotas) == 0 {
		m.holders = nil
		m.usage.Store(nil)
		return nil
	}
	devices := m.charges.updateFromNodes(s.Nodes)
	m.doubts.total = devices.all
	l := &Limits{
		Snapshot: s, quotas: quotas, memory: m,
		book: quota.NewBook(quota.NewHierarchy(s.Queues, devices.total, all...)), kinds: devices.kinds,
		refused: map[api.TaskID]quota.Shortage{}, evicted: map[sharing.Owner]struct{}{},
	}
	holders := map[sharing.Owner]holder{}
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
				if s.Tasks.Owner(t) != sharing.Owner(t.Pod.UID) {
					continue // its claim is counted by what it holds
				}
				if a := l.takenAmounts(t); len(a) > 0 {
					holders[sharing.Owner(t.Pod.UID)] = holder{string(job.Queue), t.Pod}
					l.book.Put(sharing.Owner(t.Pod.UID), l.accountOf(string(job.Queue), t.Pod), a, tenure)
				}
			}
		}
	}
	l.countHolders(holders)
	m.holders = holders
	usage := l.book.UsageOf(all)
	m.usage.Store(&usage)
	return l
}

// byNamespace returns the quotas that have limits: those of each namespace, and all.
func byNamespace(quotas []nodes.NamespaceQuota) (by map[string][]nodes.NamespaceQuota, all []quota.NamespaceQuota) {
	for _, q := range quotas {
		if len(q.Limits) == 0 {
			continue
		}
		if by == nil {
			by = map[string][]nodes.NamespaceQuota{}
		}
		by[q.Namespace] = append(by[q.Namespace], q)
		all = append(all, q.NamespaceQuota)
	}
	return by, all
}

// Usage returns what namespaces had of their limits when the last session opened. Safe for
// concurrent use.
func (m *Memory) Usage() []quota.Usage {
	if usage := m.usage.Load(); usage != nil {
		return *usage
	}
	return nil
}

// countHolders counts pods that hold devices and belong to no job of the session, because their pod
// group was deleted or Volcano has lost sight of them. They count for the queue that they belonged
// to in the last session, else for the one that they name.
func (l *Limits) countHolders(known map[sharing.Owner]holder) {
	for name, c := range l.memory.charges.nodes {
		for owner, a := range c.owners {
			if _, counted := known[owner]; counted || len(a) == 0 {
				continue
			}
			h, is := claimHolder(c.node.Claims.Of(owner))
			if !is {
				h, is = l.memory.holders[owner]
			}
			if !is {
				h, is = findHolder(l.Infos[name], owner)
			}
			if is {
				known[owner] = h
				l.book.Put(owner, l.accountOf(h.queue, h.pod), a, quota.Stays)
			}
		}
	}
}

// accountOf returns whose limits a pod of a queue counts for. Safe for concurrent use.
func (l *Limits) accountOf(queue string, pod *corev1.Pod) quota.Account {
	return l.book.Account(queue, l.quotaKeys(pod)...)
}

// quotaKeys returns the quotas that count a pod.
func (l *Limits) quotaKeys(pod *corev1.Pod) []string {
	return nodes.QuotaKeys(l.quotas[pod.Namespace], pod)
}

// QuotasOf returns a text that is equal for tasks that the same quotas of a namespace count.
func (l *Limits) QuotasOf(t *api.TaskInfo) string { return strings.Join(l.quotaKeys(t.Pod), " ") }

// hasLimits reports whether a queue was given a limit of devices.
func hasLimits(q quota.Queue) bool { return len(q.Capability)+len(q.Guarantee)+len(q.Deserved) > 0 }

// takenAmounts returns what a task takes: what it holds, or, as long as that is not known, the
// least that it may hold.
func (l *Limits) takenAmounts(t *api.TaskInfo) quota.Amounts {
	owner := l.Tasks.Owner(t)
	if n := l.Nodes[t.NodeName]; n != nil && n.Ledger != nil {
		if node, placement := l.Tasks.Given(owner); node == n.Name {
			return quota.Held(placement, n.Inventory)
		}
		if a, known := l.memory.charges.ownerAmounts(n, owner); known {
			return a
		}
	}
	if owner == sharing.Owner(t.Pod.UID) && !corepod.Asks(t.Pod, l.Settings.Names) {
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
	owner := l.Tasks.Owner(t)
	delete(l.evicted, owner)
	if tenure == quota.Leaves {
		l.evicted[owner] = struct{}{}
	}
	l.book.Put(owner, l.accountOf(l.queueOf(t), t.Pod), l.takenAmounts(t), tenure)
}

// Uncharge notes that a task takes nothing after Volcano took it off a node.
func (l *Limits) Uncharge(t *api.TaskInfo) {
	if l != nil {
		l.book.Drop(sharing.Owner(t.Pod.UID))
	}
}

// UnchargeOwner notes that a claim takes nothing after Volcano took its last pod off a node.
func (l *Limits) UnchargeOwner(claim sharing.Owner) {
	if l != nil {
		l.book.Drop(claim)
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
		l.book.Put(w.ask.Owner, w.ask.Account, w.least, quota.Arrives)
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
		Owner: l.Tasks.Owner(t), Account: l.accountOf(l.queueOf(t), t.Pod), Amounts: quota.Asked(req, l.kinds), Alone: true,
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

// JobShortage returns the limit that keeps a waiting job from having as many tasks as it needs at
// least, also before Volcano has tried any of them; false if none does. Which of its tasks run is
// not known: the smallest ones count. It changes nothing.
func (l *Limits) JobShortage(job *api.JobInfo) (quota.Shortage, bool) {
	if l == nil {
		return quota.Shortage{}, false
	}
	pending := slices.SortedFunc(maps.Values(job.TaskStatusIndex[api.Pending]), func(x, y *api.TaskInfo) int {
		return cmp.Or(cmp.Compare(l.askedMemory(x), l.askedMemory(y)), cmp.Compare(x.Name, y.Name))
	})
	missing := int(job.MinAvailable) - int(job.ReadyTaskNum())
	var together []quota.Ask
	var joined quota.Account
	for _, t := range pending[:min(max(missing, 1), len(pending))] {
		w := l.AllowanceNow(t, l.Tasks.Request(t))
		if w == nil {
			continue
		}
		together, joined = w.joinAsks(together, joined)
		if short, refused := l.book.CheckTogether(joined, together...); refused {
			return short, true
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
