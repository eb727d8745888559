// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"cmp"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
)

// victimFilter returns the candidates that all other plugins of the session allow to evict for
// a task. Volcano evicts only pods that every plugin allows. If one pod of a set that
// must leave together is not allowed, evicting the rest helps nobody.
type victimFilter func(task *api.TaskInfo, candidates []*api.TaskInfo) []*api.TaskInfo

// eviction is how an action of Volcano evicts the victims that it was given. The totals
// that it goes by are per resource and node, and know nothing of single devices.
type eviction int

const (
	// preemptByTotals evicts one victim after the other, until the totals have room.
	preemptByTotals eviction = iota
	// reclaimByTotals does the same, but always evicts the first victim.
	reclaimByTotals
	// preemptByDryRun evicts the victims whose leaving helps, as tried on copies of the
	// node.
	preemptByDryRun
)

// evictions choose who leaves a node so that others have room there. The fields are set when the
// session opens; now belongs to the session goroutine.
type evictions struct {
	*judge
	jobs map[api.JobID]*api.JobInfo
	// dryRuns says that the preempt action tries evictions on copies of a node and
	// asks afterEvictions whether they help.
	dryRuns bool
	order   victimOrder
	// now are the pods with devices that the action under way evicts.
	now map[api.TaskID]struct{}
}

// victimChooser says which of the candidates, all on one node, may be evicted for a task; false if
// it has no opinion.
type victimChooser func(task *api.TaskInfo, candidates []*api.TaskInfo, agree victimFilter) (victims []*api.TaskInfo, opinion bool)

// unlessPlanned is a choice that is left to the plans of room: it has no opinion on those, and
// allows nobody for a job for which room has decided.
func (e *evictions) unlessPlanned(choose victimChooser) victimChooser {
	return func(task *api.TaskInfo, candidates []*api.TaskInfo, agree victimFilter) ([]*api.TaskInfo, bool) {
		if e.store.room.IsPlanning() {
			return nil, false
		}
		if !e.store.room.MayEvictFor(task.Job) {
			return nil, true
		}
		return choose(task, candidates, agree)
	}
}

// choosePreemptVictims says which of the candidates, all on one node, may be evicted for a
// task of the same queue.
func (e *evictions) choosePreemptVictims(task *api.TaskInfo, candidates []*api.TaskInfo, agree victimFilter) ([]*api.TaskInfo, bool) {
	if e.dryRuns {
		return e.chooseVictims(task, candidates, agree, preemptByDryRun)
	}
	return e.chooseVictims(task, candidates, agree, preemptByTotals)
}

// chooseReclaimVictims says which of the candidates, all on one node, may be evicted for a
// task of another queue.
func (e *evictions) chooseReclaimVictims(task *api.TaskInfo, candidates []*api.TaskInfo, agree victimFilter) ([]*api.TaskInfo, bool) {
	if e.limits != nil {
		// Which ones the others allow depends on the order: ours must be among them.
		allowed := slices.SortedStableFunc(slices.Values(agree(task, candidates)), e.lowestFirst)
		if left := e.limits.GivenUp(allowed, e.askOf(task) == nil); len(left) < len(allowed) {
			if victims, opinion := e.chooseVictims(task, left, agree, reclaimByTotals); opinion {
				return victims, true
			}
			return left, true
		}
	}
	return e.chooseVictims(task, candidates, agree, reclaimByTotals)
}

// chooseVictims returns the candidates, all on one node, that may be evicted for a task that
// asks for devices. They are the pods whose devices make it fit, and all pods without
// devices, since other resources may be short as well. Without this vote Volcano chooses
// by its totals: it takes four pods of 2 GiB on four devices for room of 8 GiB.
//
// It has no opinion (false) if the devices and the queue have room already: then another
// resource is short, and devices have no say in who leaves.
//
// It allows nobody if the task would not fit even without all candidates, if Volcano would stop
// before every pod has left that must, or if the queue has room as soon as pods have ended that are
// leaving already: such evictions help nobody.
func (e *evictions) chooseVictims(task *api.TaskInfo, candidates []*api.TaskInfo, agree victimFilter, how eviction) ([]*api.TaskInfo, bool) {
	a := e.askOf(task)
	switch {
	case a == nil:
		return nil, false
	case len(candidates) == 0, a.claim != nil: // nobody leaves for a claim yet
		return nil, true
	}
	n, info := e.nodes[candidates[0].NodeName], e.infos[candidates[0].NodeName]
	if e.requireServing(a, n) != nil || e.awaitsRoom(task, a) {
		return nil, true
	}
	if e.fitsWithout(task, a, n, info, nil) {
		return nil, false
	}
	candidates = agree(task, candidates)
	var victims, holders []*api.TaskInfo
	for _, c := range candidates {
		if holdsDevices(e.overlay.currentLedger(n), c) {
			holders = append(holders, c)
		} else {
			victims = append(victims, c)
		}
	}
	leave, fits := e.fewestToLeave(task, a, n, info, holders)
	if !fits {
		return nil, true
	}
	sets := [][]*api.TaskInfo{append(victims, leave...), candidates}
	if e.limits.Allowance(task, a.served()).Unavoidable() != nil {
		// Volcano evicts until the queue has room: pods without devices would leave in vain.
		sets = slices.Insert(sets, 0, leave)
	}
	for _, set := range sets {
		if e.wouldMakeRoom(task, a, n, info, set, how) {
			return set, true
		}
	}
	return nil, true
}

// fitsWithout reports whether a task fits, its node and its queue, once the pods that are
// leaving the node, and these tasks as well, are gone.
func (e *evictions) fitsWithout(task *api.TaskInfo, a *ask, n *nodes.Node, info *api.NodeInfo, leave []*api.TaskInfo) bool {
	ledger := e.overlay.futureLedger(n, info)
	if len(leave) > 0 {
		ledger = ledger.Fork()
	}
	for _, t := range leave {
		ledger.Release(sharing.Owner(t.Pod.UID))
	}
	_, refused, short := findPlacement(ledger, n, &a.request, e.backendsFor(a), e.policyFor(a), e.limits.Allowance(task, a.served(), leave...))
	return !refused.Refused() && short == nil
}

// fewestToLeave returns tasks without which a request fits that does not fit now: a
// single task if one is enough, else a minimal set, found by sparing one task after the
// other. Tasks of low priority leave first. It returns false if no set is enough.
func (e *evictions) fewestToLeave(task *api.TaskInfo, a *ask, n *nodes.Node, info *api.NodeInfo, holders []*api.TaskInfo) (leave []*api.TaskInfo, fits bool) {
	slices.SortStableFunc(holders, e.lowestFirst)
	for i := range holders {
		if e.fitsWithout(task, a, n, info, holders[i:i+1]) {
			return holders[i : i+1], true
		}
	}
	if !e.fitsWithout(task, a, n, info, holders) {
		return nil, false
	}
	leave = holders
	for i := len(leave) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(leave), i, i+1); e.fitsWithout(task, a, n, info, fewer) {
			leave = fewer
		}
	}
	return leave, true
}

// wouldMakeRoom reports whether Volcano, given these victims, would evict enough of them
// for the task to fit, by totals and by devices. Unless it tries on copies, it evicts in
// its own order and stops as soon as the totals have room.
func (e *evictions) wouldMakeRoom(task *api.TaskInfo, a *ask, n *nodes.Node, info *api.NodeInfo, victims []*api.TaskInfo, how eviction) bool {
	room := info.FutureIdle()
	if how == preemptByDryRun {
		for _, v := range victims {
			room.Add(v.Resreq)
		}
		return task.InitResreq.LessEqual(room, api.Zero)
	}
	var gone []*api.TaskInfo
	for queue := e.order.BuildVictimsPriorityQueue(victims, task); !queue.Empty(); {
		if task.InitResreq.LessEqual(room, api.Zero) && e.stopsEvicting(task, a, gone, how) {
			break
		}
		v := queue.Pop().(*api.TaskInfo)
		room.Add(v.Resreq)
		gone = append(gone, v)
	}
	return task.InitResreq.LessEqual(room, api.Zero) && e.fitsWithout(task, a, n, info, gone)
}

// stopsEvicting reports whether Volcano stops evicting when the totals have room: reclaim evicts
// the first victim in any case, preempt goes on until the queue has room as well.
func (e *evictions) stopsEvicting(task *api.TaskInfo, a *ask, gone []*api.TaskInfo, how eviction) bool {
	if how == reclaimByTotals {
		return len(gone) > 0
	}
	return e.limits.Allowance(task, a.served(), gone...).Unavoidable() == nil
}

// afterEvictions is the predicate on a copy of a node from which Volcano has taken
// pods, to see whether their leaving helps. It runs in many goroutines and changes
// nothing.
func (e *evictions) afterEvictions(task *api.TaskInfo, tried *api.NodeInfo) error {
	a := e.askOf(task)
	if a == nil {
		return nil
	}
	if a.claim != nil {
		return refusalOn(task, tried, false, "nobody is evicted for a pod with a ResourceClaim")
	}
	n, info := e.nodes[tried.Name], e.infos[tried.Name]
	if err := e.requireServing(a, n); err != nil {
		return refusalOn(task, tried, false, err.Error())
	}
	// The copy is compared with its node and not with the ledger, in which pods may
	// be that Volcano has lost sight of.
	ledger := e.overlay.futureLedger(n, info).Fork()
	var gone []*api.TaskInfo
	for key, t := range info.Tasks {
		if _, there := tried.Tasks[key]; !there {
			ledger.Release(sharing.Owner(t.Pod.UID))
			gone = append(gone, t)
		}
	}
	_, refused, short := findPlacement(ledger, n, &a.request, e.backendsFor(a), e.policyFor(a), e.limits.Allowance(task, a.served(), gone...))
	switch {
	case short != nil:
		return refusalOn(task, tried, true, overQuota(short))
	case refused.Refused():
		return refusalOn(task, tried, true, a.refusalText(&refused))
	}
	return nil
}

// lowestFirst orders tasks by the priority of their job, then their own.
func (e *evictions) lowestFirst(x, y *api.TaskInfo) int {
	return cmp.Or(cmp.Compare(e.jobPriority(x), e.jobPriority(y)), cmp.Compare(x.Priority, y.Priority),
		cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
}

// holdsDevices reports whether a task has devices, or may have some that cannot be read.
func holdsDevices(l *sharing.Ledger, t *api.TaskInfo) bool {
	owner := sharing.Owner(t.Pod.UID)
	_, held := l.Placement(owner)
	return held || slices.Contains(l.Blocking(), owner)
}

// jobPriority is the priority of a task's job, 0 if the job is not known.
func (e *evictions) jobPriority(t *api.TaskInfo) int32 {
	if j, ok := e.jobs[t.Job]; ok {
		return j.Priority
	}
	return 0
}

// noteEviction notes that Volcano evicts a pod with devices in this session.
func (e *evictions) noteEviction(t *api.TaskInfo) {
	if e.now == nil {
		e.now = map[api.TaskID]struct{}{}
	}
	e.now[t.UID] = struct{}{}
}

// undoEviction notes that Volcano does not evict a pod after all.
func (e *evictions) undoEviction(t *api.TaskInfo) { delete(e.now, t.UID) }

// countEvictions counts the pods that an action, which has just ended, has evicted.
func (e *evictions) countEvictions(action string) {
	if n := len(e.now); n > 0 {
		e.store.metrics.CountEvictions(action, n)
		clear(e.now)
	}
}
