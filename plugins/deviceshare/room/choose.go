// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
)

// Engine is what chooses whom preempt or reclaim evicts.
type Engine string

// The engines.
const (
	// Planner is this package with sharing/plan. Volcano chooses for jobs that no plans are made
	// for.
	Planner Engine = "deviceshare"
	// Volcano is its own action.
	Volcano Engine = "volcano"
)

// Choose runs preempt or reclaim. Who is chosen becomes the victim of a hold, and the evictor sends
// it. Jobs that are held back are let in if room is made for them.
func (r *Room) Choose(a framework.Action, by Engine, held HeldBack) {
	s := r.session
	if !s.begun {
		return // not all pods are known: the wrong ones could be evicted
	}
	waiting := s.heldBack(held, func(job *api.JobInfo) bool { return len(job.TaskStatusIndex[api.Pending]) > 0 })
	for _, job := range waiting {
		letJobIn(job)
	}
	served, others := map[api.JobID][]holds.Victim{}, true
	if by == Planner {
		served, others = r.planEvictions(a.Name(), MoveLimits{})
	}
	if others {
		for j, victims := range r.chooseAsVolcano(a) {
			served[j] = victims
			r.book.Keep(s.holdOf(j, victims, r.now()))
		}
	}
	clear(s.judged)
	for _, job := range waiting {
		if _, ok := served[job.UID]; ok {
			s.JobEnqueued(job)
		} else {
			keepJobOut(job)
		}
	}
	if len(served) > 0 {
		r.publishVictims()
	}
}

// chooseAsVolcano runs an action of Volcano and returns the victims that it commits, by the job
// that gets the room.
func (r *Room) chooseAsVolcano(a framework.Action) map[api.JobID][]holds.Victim {
	s := r.session
	s.forgetChoices()
	chosen := &choice{room: r, session: s, action: a.Name(), victims: map[api.JobID][]holds.Victim{}}
	restore, err := takeEvictions(s.Session, func(c cache.Cache) cache.Cache {
		chosen.Cache = c
		return chosen
	})
	if err != nil {
		klog.ErrorS(err, "Cannot run an action", "action", a.Name())
		return nil
	}
	defer restore()
	before := s.lastTransactions()
	a.Execute(s.Session)
	s.dropFalsePromises(chosen.victims, before)
	return chosen.victims
}

// choice is the cache that an action commits its evictions to. They take effect with the holds.
type choice struct {
	cache.Cache
	room    *Room
	session *session
	action  string
	victims map[api.JobID][]holds.Victim
}

// Evict implements cache.Cache. An error has Volcano undo the eviction in its session.
func (c *choice) Evict(t *api.TaskInfo, _ string) error {
	j, known := c.session.victimOf[t.UID]
	switch {
	case !known:
		return fmt.Errorf("evict pod %s: no pod is given its room", nameOf(t))
	case c.session.Jobs[t.Job] == nil || t.Pod.DeletionTimestamp != nil:
		return fmt.Errorf("evict pod %s: it leaves already, or is none of this scheduler's", nameOf(t))
	case c.session.Jobs[j].ContainsNetworkTopology():
		return fmt.Errorf("evict pod %s: the network topology of %s is known to allocate only", nameOf(t), j)
	case !c.room.MayEvictFor(j):
		return fmt.Errorf("evict pod %s: room that was made for %s could not be used, so it waits", nameOf(t), j)
	case !c.session.givesPlace(j, t.NodeName):
		return fmt.Errorf("evict pod %s: no pod of %s is given a place on node %s", nameOf(t), j, t.NodeName)
	}
	c.victims[j] = append(c.victims[j], victimOf(t, t.NodeName, c.action, c.room.now()))
	return nil
}

// overdueAfter is how long after its grace period a victim counts as one that does not end, in
// seconds.
const overdueAfter = 60

// graceOf is how long a pod may take to end, in seconds.
func graceOf(pod *corev1.Pod) int64 {
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return *g
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// givesPlace reports whether the session has given a task of a job a place on a node that it can
// use.
func (s *session) givesPlace(j api.JobID, node string) bool {
	return slices.ContainsFunc(s.promised, func(t *api.TaskInfo) bool {
		return t.Job == j && t.NodeName == node && s.devices.IsPromised(t)
	})
}

// lastTransactions returns what Volcano would tell the tasks that wait.
func (s *session) lastTransactions() map[*api.TaskInfo]*api.TransactionContext {
	last := map[*api.TaskInfo]*api.TransactionContext{}
	for _, job := range s.Jobs {
		for _, t := range job.TaskStatusIndex[api.Pending] {
			last[t] = t.LastTransaction
		}
	}
	return last
}

// dropFalsePromises takes places back from tasks whose evictions were not carried out. Volcano
// would tell them, and go on telling them, that they can possibly be assigned to the node.
func (s *session) dropFalsePromises(carriedOut map[api.JobID][]holds.Victim, before map[*api.TaskInfo]*api.TransactionContext) {
	undo := framework.NewStatement(s.Session)
	for _, t := range slices.Clone(s.promised) {
		if _, ok := carriedOut[t.Job]; !ok && t.EvictionOccurred {
			_ = undo.UnPipeline(t) // logged by Volcano
			t.EvictionOccurred = false
		}
	}
	for t, last := range before {
		if t.Status == api.Pending {
			t.LastTransaction = last
		}
	}
}

// holdOf returns the hold of a job whose tasks have places in this session, in the order in which
// they were given: in another one, devices may not be enough.
func (s *session) holdOf(j api.JobID, victims []holds.Victim, now int64) holds.Hold {
	h := holds.Hold{Job: holds.Job(j), Priority: s.priorityOf(j), Since: now, Victims: victims}
	for _, t := range s.Jobs[j].TaskStatusIndex[api.Pipelined] {
		h.Slots = append(h.Slots, holds.Slot{Pod: holds.Pod(t.Pod.UID), Name: nameOf(t), Node: t.NodeName, Shape: s.shapeOf(t)})
	}
	given := func(slot holds.Slot) int {
		return slices.IndexFunc(s.promised, func(t *api.TaskInfo) bool { return holds.Pod(t.Pod.UID) == slot.Pod })
	}
	slices.SortFunc(h.Slots, func(x, y holds.Slot) int { return cmp.Or(cmp.Compare(given(x), given(y)), cmp.Compare(x.Name, y.Name)) })
	return h
}
