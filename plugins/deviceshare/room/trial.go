// SPDX-License-Identifier: Apache-2.0

package room

import (
	"fmt"
	"slices"

	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/metrics"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/sharing/plan"
)

// place is where a plan has a task go, for what it asks, on the n-th node.
type place struct {
	task *api.TaskInfo
	wish *plan.Wish
	node *api.NodeInfo
	n    int
}

// fitWithoutEvictions reports whether all plugins agree that tasks have room, now or when pods have
// left that are leaving already: then allocate places them.
func (p *planner) fitWithoutEvictions(job *api.JobInfo, places []place) bool {
	stmt := framework.NewStatement(p.Session)
	defer p.undoTrial(stmt, holds.Job(job.UID))
	refused, _ := p.tryInSession(stmt, places, nil)
	return refused < 0
}

// tryPlan has the session see victims as leaving and tasks in their places, if all plugins agree.
// What it does is neither committed nor discarded. If they do not, it is undone, and the place that
// is refused returned; else -1.
func (p *planner) tryPlan(job *api.JobInfo, places []place, victims []*api.TaskInfo) (refused int) {
	metrics.UpdatePreemptionVictimsCount(len(victims))
	metrics.RegisterPreemptionAttempts()
	stmt := framework.NewStatement(p.Session)
	refused, why := p.tryInSession(stmt, places, victims)
	if refused < 0 && !p.JobPipelined(job) {
		refused, why = 0, "the job cannot start with these pods"
	}
	if refused >= 0 {
		klog.V(3).InfoS("A plan is refused", "pod", nameOf(places[refused].task), "node", places[refused].node.Name, "why", why)
		p.undoTrial(stmt, holds.Job(job.UID))
		return refused
	}
	now := p.room.now()
	for _, v := range victims {
		p.victims[job.UID] = append(p.victims[job.UID], victimOf(v, roomOf(v, places), p.action, now))
	}
	p.room.book.Keep(p.holdOf(job.UID, p.victims[job.UID], now))
	return -1
}

// roomOf returns the node on which the leaving of a task makes room. Of a gang that leaves as a
// whole, some run on other nodes.
func roomOf(v *api.TaskInfo, places []place) string {
	if slices.ContainsFunc(places, func(at place) bool { return at.node.Name == v.NodeName }) {
		return v.NodeName
	}
	return places[0].node.Name
}

// tryInSession tries a plan in the session. It returns the place that is refused and why, -1 if
// none is.
func (p *planner) tryInSession(stmt *framework.Statement, places []place, victims []*api.TaskInfo) (refused int, why string) {
	for _, v := range victims {
		if err := stmt.Evict(v, "make room"); err != nil {
			return 0, err.Error()
		}
	}
	p.devices.JudgeFuture(true)
	defer p.devices.JudgeFuture(false)
	for i, at := range places {
		if why := p.tryPlace(stmt, at); why != "" {
			return i, why
		}
	}
	return -1, ""
}

// tryPlace has the session see a task in its place. It returns why it cannot be, "" if it can.
func (p *planner) tryPlace(stmt *framework.Statement, at place) (why string) {
	t, n := at.task, at.node
	if !hasFutureRoom(t, n) {
		return "the sums of the node have no room"
	}
	queue := p.Queues[p.Jobs[t.Job].Queue]
	switch {
	case !p.Allocatable(queue, t):
		return "its queue has no room"
	case p.isReclaim() && !p.Preemptive(queue, t):
		return "its queue may not reclaim it"
	}
	if err := p.PrePredicateFn(t); err != nil {
		return err.Error()
	}
	if err := p.PredicateForAllocateAction(t, n); err != nil {
		return err.Error()
	}
	return p.promisePlace(stmt, t, n)
}

// promisePlace has the session promise a task a place, for which PrePredicateFn has run. It returns
// why it cannot, "" if it can.
func (s *session) promisePlace(stmt *framework.Statement, t *api.TaskInfo, n *api.NodeInfo) (why string) {
	if err := stmt.Pipeline(t, n.Name, true); err != nil {
		_ = stmt.UnPipeline(t)
		return err.Error()
	}
	if !s.devices.IsPromised(t) {
		return fmt.Sprintf("the devices of node %s have no room for pod %s, whoever leaves", n.Name, nameOf(t))
	}
	return ""
}

// victimOf returns a task that an action evicts for a place on a node, as a hold knows it.
func victimOf(t *api.TaskInfo, node, action string, now int64) holds.Victim {
	return holds.Victim{
		Pod: holds.Pod(t.Pod.UID), Name: nameOf(t), Node: t.NodeName, For: node, Action: action,
		Deadline: now + graceOf(t.Pod) + overdueAfter,
	}
}
