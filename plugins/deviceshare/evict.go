// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"cmp"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

// preemptable says which of the candidates, all on one node, may be evicted for a
// task of the same queue. Those that are not below it in priority stay: Volcano's
// priority plugin does not give them up, and a set without them would be evicted
// in vain.
func (p *Plugin) preemptable(task *api.TaskInfo, candidates []*api.TaskInfo) ([]*api.TaskInfo, bool) {
	return p.evictable(task, slices.DeleteFunc(slices.Clone(candidates), func(c *api.TaskInfo) bool {
		if c.Job == task.Job {
			return c.Priority >= task.Priority
		}
		theirs, ours := p.jobs[c.Job], p.jobs[task.Job]
		return theirs != nil && ours != nil && theirs.Priority >= ours.Priority
	}), !p.dryRuns)
}

// reclaimable says which of the candidates, all on one node, may be evicted for a
// task of another queue.
func (p *Plugin) reclaimable(task *api.TaskInfo, candidates []*api.TaskInfo) ([]*api.TaskInfo, bool) {
	return p.evictable(task, candidates, true)
}

// evictable says which of the candidates, all on one node, may be evicted for a
// task that asks for devices: those whose devices make it fit, and those that
// have none, which may be needed for other resources. Volcano chooses by sums
// alone: four pods of 2 GiB on four devices look to it like room for 8 GiB.
//
// If nobody's leaving makes the task fit, nobody is given up: the evictions would
// be in vain. So they would be if sums decide when to stop and Volcano would stop
// before all have left that have to.
func (p *Plugin) evictable(task *api.TaskInfo, candidates []*api.TaskInfo, sumsDecide bool) ([]*api.TaskInfo, bool) {
	a := p.ask(task)
	switch {
	case a == nil:
		return nil, false
	case len(candidates) == 0:
		return nil, true
	}
	n, info := p.nodes[candidates[0].NodeName], p.infos[candidates[0].NodeName]
	if p.impossible(a, p.nodes[info.Name]) != "" {
		return nil, true
	}
	var victims, holders []*api.TaskInfo
	for _, c := range candidates {
		if holds(p.overlay.now(n), c) {
			holders = append(holders, c)
		} else {
			victims = append(victims, c)
		}
	}
	leave, fits := p.enough(a, n, info, holders)
	victims = append(victims, leave...)
	if !fits || sumsDecide && !p.carriedOut(task, info, victims, leave) {
		return nil, true
	}
	return victims, true
}

// enough returns tasks whose leaving makes the request fit: none if it fits
// anyway, one if that is enough, else as few as are found by sparing them one
// after the other. Those of low priority leave first.
func (p *Plugin) enough(a *ask, n *nodeState, info *api.NodeInfo, holders []*api.TaskInfo) (leave []*api.TaskInfo, fits bool) {
	without := func(leave ...*api.TaskInfo) bool {
		ledger := p.overlay.future(n, info).Fork()
		for _, t := range leave {
			ledger.Release(sharing.Owner(t.Pod.UID))
		}
		_, refused := place.Place(ledger.Views(), &a.request, p.store.backends, p.policy(a))
		return !refused.Refused()
	}
	if without() {
		return nil, true
	}
	slices.SortStableFunc(holders, p.lowestFirst)
	for _, t := range holders {
		if without(t) {
			return []*api.TaskInfo{t}, true
		}
	}
	if !without(holders...) {
		return nil, false
	}
	leave = holders
	for i := len(leave) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(leave), i, i+1); without(fewer...) {
			leave = fewer
		}
	}
	return leave, true
}

// carriedOut reports whether Volcano would evict all that have to leave. It
// evicts in its own order and stops as soon as the sums have room.
func (p *Plugin) carriedOut(task *api.TaskInfo, info *api.NodeInfo, victims, leave []*api.TaskInfo) bool {
	left := len(leave)
	room := info.FutureIdle()
	for queue := p.evictionOrder(victims, task); left > 0 && !queue.Empty(); {
		if task.InitResreq.LessEqual(room, api.Zero) {
			return false
		}
		v := queue.Pop().(*api.TaskInfo)
		room.Add(v.Resreq)
		if slices.ContainsFunc(leave, func(t *api.TaskInfo) bool { return t.UID == v.UID }) {
			left--
		}
	}
	return left == 0
}

// lowestFirst orders tasks by the priority of their job, then their own.
func (p *Plugin) lowestFirst(x, y *api.TaskInfo) int {
	return cmp.Or(cmp.Compare(p.jobPriority(x), p.jobPriority(y)), cmp.Compare(x.Priority, y.Priority),
		cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
}

// holds reports whether a task has devices, or is not known not to.
func holds(l *sharing.Ledger, t *api.TaskInfo) bool {
	owner := sharing.Owner(t.Pod.UID)
	_, held := l.Placement(owner)
	return held || slices.Contains(l.Blocking(), owner)
}

// jobPriority is the priority of a task's job, 0 if the job is not known.
func (p *Plugin) jobPriority(t *api.TaskInfo) int32 {
	if j, ok := p.jobs[t.Job]; ok {
		return j.Priority
	}
	return 0
}
