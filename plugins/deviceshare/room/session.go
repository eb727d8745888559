// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"fmt"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
)

var _ holds.Cluster = (*session)(nil)

// session is one session of Volcano.
type session struct {
	*framework.Session
	devices Devices
	begun   bool
	// The action under way has given promised a place. It evicts a task for the job that is given a
	// place next: open has the tasks that it has evicted since, and victimOf those before.
	promised []*api.TaskInfo
	open     []api.TaskID
	victimOf map[api.TaskID]api.JobID
	// heldBySum says of jobs whether only a sum keeps them out: plugins count a job that they are
	// asked about.
	heldBySum map[api.JobID]bool
	// judged are the jobs for which the action under way makes plans: Volcano chooses nobody
	// for them. planning says that other plugins are asked for what a plan says.
	judged   map[api.JobID]bool
	planning bool
	// namespaceLabels are the labels of namespaces, as far as they were asked for.
	namespaceLabels map[string]map[string]string
	// hasPlanned says that an action has looked for plans.
	hasPlanned bool
}

// followActions notes what actions do with tasks, before they commit it.
func (s *session) followActions() {
	s.AddEventHandler(&framework.EventHandler{
		AllocateFunc: func(e *framework.Event) {
			switch e.Task.Status {
			case api.Pipelined:
				s.notePromise(e.Task)
			case api.Running: // an eviction was undone
				delete(s.victimOf, e.Task.UID)
				s.open = slices.DeleteFunc(s.open, func(id api.TaskID) bool { return id == e.Task.UID })
			}
		},
		DeallocateFunc: func(e *framework.Event) {
			switch e.Task.Status {
			case api.Releasing:
				s.open = append(s.open, e.Task.UID)
			case api.Pending:
				s.promised = slices.DeleteFunc(s.promised, func(t *api.TaskInfo) bool { return t.UID == e.Task.UID })
			}
		},
	})
}

func (s *session) notePromise(t *api.TaskInfo) {
	s.promised = append(s.promised, t)
	for _, victim := range s.open {
		s.victimOf[victim] = t.Job
	}
	s.open = s.open[:0]
}

// forgetChoices forgets what earlier actions have done.
func (s *session) forgetChoices() {
	s.promised, s.open = s.promised[:0], s.open[:0]
	clear(s.victimOf)
}

// findMember returns a task of a job, nil if there is none.
func (s *session) findMember(j holds.Job, p holds.Pod) *api.TaskInfo {
	if job := s.Jobs[api.JobID(j)]; job != nil {
		return job.Tasks[api.TaskID(p)]
	}
	return nil
}

// findVictim returns the task of a victim that still takes something of its node, nil if it is
// gone.
func (s *session) findVictim(v *holds.Victim) *api.TaskInfo {
	n := s.Nodes[v.Node]
	if n == nil {
		return nil
	}
	t := n.Tasks[api.TaskID(v.Name)]
	if t == nil || holds.Pod(t.Pod.UID) != v.Pod || t.Status == api.Succeeded || t.Status == api.Failed {
		return nil
	}
	return t
}

// Waits implements holds.Cluster.
func (s *session) Waits(j holds.Job, p holds.Pod) (shape string, waits bool) {
	t := s.findMember(j, p)
	if t == nil || !isWaiting(t) {
		return "", false
	}
	return s.shapeOf(t), true
}

// IsBinding implements holds.Cluster.
func (s *session) IsBinding(j holds.Job, p holds.Pod) bool { return isBinding(s.findMember(j, p)) }

// IsBound implements holds.Cluster.
func (s *session) IsBound(j holds.Job, p holds.Pod) bool {
	t := s.findMember(j, p)
	return t != nil && t.Status != api.Pending && !isBinding(t)
}

// Members implements holds.Cluster.
func (s *session) Members(j holds.Job) (waiting []holds.Member, exists bool) {
	job := s.Jobs[api.JobID(j)]
	if job == nil || job.PodGroup == nil || s.Queues[job.Queue] == nil {
		return nil, false
	}
	for _, t := range job.TaskStatusIndex[api.Pending] {
		if isWaiting(t) {
			waiting = append(waiting, holds.Member{Pod: holds.Pod(t.Pod.UID), Name: nameOf(t), Shape: s.shapeOf(t), Made: t.Pod.CreationTimestamp.Unix()})
		}
	}
	slices.SortFunc(waiting, func(x, y holds.Member) int { return cmp.Compare(x.Name, y.Name) })
	return waiting, true
}

// Occupies implements holds.Cluster.
func (s *session) Occupies(v *holds.Victim) bool { return s.findVictim(v) != nil }

// LeavesSince implements holds.Cluster. The API server writes when the grace period ends.
func (s *session) LeavesSince(v *holds.Victim) (since int64, leaves bool) {
	t := s.findVictim(v)
	if t == nil || t.Pod.DeletionTimestamp == nil {
		return 0, false
	}
	since = t.Pod.DeletionTimestamp.Unix()
	if grace := t.Pod.DeletionGracePeriodSeconds; grace != nil {
		since -= *grace
	}
	return since, true
}

// IsUsable implements holds.Cluster.
func (s *session) IsUsable(node string) bool {
	n := s.Nodes[node]
	return n != nil && n.Ready() && n.Node != nil && !n.Node.Spec.Unschedulable
}

// shapeOf is equal for tasks that may take each other's place.
func (s *session) shapeOf(t *api.TaskInfo) string {
	return fmt.Sprintf("%s %s %s", t.TaskRole, t.InitResreq, s.devices.Shape(t))
}

func nameOf(t *api.TaskInfo) string { return t.Namespace + "/" + t.Name }

// priorityOf is the priority of a task's job.
func (s *session) priorityOf(j api.JobID) int32 {
	if job := s.Jobs[j]; job != nil {
		return job.Priority
	}
	return 0
}

// evictVictims has the session see the victims of a hold as leaving, where the snapshot does not
// yet.
func (s *session) evictVictims(stmt *framework.Statement, h *holds.Hold) {
	for i := range h.Victims {
		onNode := s.findVictim(&h.Victims[i])
		if onNode == nil {
			continue
		}
		if t := s.findMember(holds.Job(onNode.Job), h.Victims[i].Pod); canBeEvicted(s.Session, t) {
			_ = stmt.Evict(t, "make room") // logged by Volcano
		}
	}
}

// applyHold binds the pods of a hold if they fit now, or else keeps their places in this session.
// It returns why it cannot, "" if it can. After a restart it is not known in which order the pods
// fit: both are tried.
func (s *session) applyHold(h *holds.Hold) (why string) {
	if why = s.applyInOrder(h); why == "" || len(h.Slots) < 2 {
		return why
	}
	slices.Reverse(h.Slots)
	if s.applyInOrder(h) == "" {
		return ""
	}
	return why
}

// applyInOrder is applyHold for the order of the slots.
func (s *session) applyInOrder(h *holds.Hold) (why string) {
	if s.bindPods(h) {
		h.Victims = nil // those that were not sent yet need not leave
		return ""
	}
	stmt := framework.NewStatement(s.Session)
	for i := range h.Slots {
		if why := s.keepPlace(stmt, h, &h.Slots[i]); why != "" {
			s.undoTrial(stmt, h.Job)
			return why
		}
	}
	return ""
}

// bindPods binds the pods of a hold if all fit now and the job can start with them.
func (s *session) bindPods(h *holds.Hold) bool {
	stmt := framework.NewStatement(s.Session)
	for i := range h.Slots {
		slot := &h.Slots[i]
		t, n := s.findMember(h.Job, slot.Pod), s.Nodes[slot.Node]
		if isBinding(t) {
			continue
		}
		if t == nil || !fitsNow(s.Session, t, n) {
			s.undoTrial(stmt, h.Job)
			return false
		}
		if err := stmt.Allocate(t, n); err != nil {
			_ = stmt.UnAllocate(t)
			s.undoTrial(stmt, h.Job)
			return false
		}
	}
	if !s.JobReady(s.Jobs[api.JobID(h.Job)]) {
		s.undoTrial(stmt, h.Job)
		return false
	}
	stmt.Commit()
	return true
}

// keepPlace keeps the place of one pod in this session. It returns why it cannot, "" if it can.
func (s *session) keepPlace(stmt *framework.Statement, h *holds.Hold, slot *holds.Slot) (why string) {
	t, n := s.findMember(h.Job, slot.Pod), s.Nodes[slot.Node]
	if slot.IsVacant() || isBinding(t) {
		return ""
	}
	if !hasFutureRoom(t, n) {
		return fmt.Sprintf("node %s has no room for pod %s, whoever leaves", slot.Node, slot.Name)
	}
	if err := s.PrePredicateFn(t); err != nil { // plugins note what Pipeline needs
		return err.Error()
	}
	return s.promisePlace(stmt, t, n)
}

// undoTrial undoes a trial. Volcano would tell the tasks of the job that they can possibly be
// assigned.
func (s *session) undoTrial(stmt *framework.Statement, j holds.Job) {
	stmt.Discard()
	for _, t := range s.Jobs[api.JobID(j)].TaskStatusIndex[api.Pending] {
		t.ClearLastTxContext()
	}
}
