// SPDX-License-Identifier: Apache-2.0

package room

import (
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/holds"
)

// rebuildHolds finds the holds of an earlier process, by what it has written: the nominated node of
// pods that wait, and the sentence that victims were given.
func (r *Room) rebuildHolds() {
	s := r.session
	victims := map[string][]holds.Victim{} // by the name of the pod that gets the room
	where := map[string]string{}
	for _, n := range s.Nodes {
		for _, t := range n.Tasks {
			reason, ok := disruptionOf(t.Pod)
			if !ok {
				continue
			}
			if t.Pod.DeletionTimestamp == nil && (reason.Reclaimed || reason.Kept != "" || !canBeEvicted(s.Session, t)) {
				continue // the action chooses again
			}
			r.rebuildMove(t, reason.Kept)
			where[reason.For] = reason.Node
			victims[reason.For] = append(victims[reason.For], holds.Victim{
				Pod: holds.Pod(t.Pod.UID), Name: nameOf(t), Node: n.Name, For: reason.Node, Action: actionOf(reason), Deadline: r.now() + graceOf(t.Pod) + overdueAfter,
			})
		}
	}
	for _, job := range s.Jobs {
		if r.book.Of(holds.Job(job.UID)) != nil {
			continue // its pods move: what waits takes their places
		}
		h := holds.Hold{Job: holds.Job(job.UID), Priority: job.Priority, Since: r.now()}
		for _, t := range s.waitingTasks(job) {
			node := t.Pod.Status.NominatedNodeName
			if node == "" {
				node = where[nameOf(t)]
			}
			if node == "" {
				continue
			}
			h.Slots = append(h.Slots, holds.Slot{Pod: holds.Pod(t.Pod.UID), Name: nameOf(t), Node: node, Shape: s.shapeOf(t)})
			h.Victims = append(h.Victims, s.chooseLessImportant(job, victims[nameOf(t)])...)
		}
		if len(h.Slots) > 0 {
			r.book.Keep(h)
		}
	}
}

// chooseLessImportant returns the victims that leave, and those that a job may have evicted.
func (s *session) chooseLessImportant(job *api.JobInfo, victims []holds.Victim) (may []holds.Victim) {
	for i := range victims {
		t := s.findVictim(&victims[i])
		if t != nil && (t.Pod.DeletionTimestamp != nil || s.priorityOf(t.Job) < job.Priority) {
			may = append(may, victims[i])
		}
	}
	return may
}

func actionOf(r holds.Reason) string {
	switch {
	case r.Kept != "":
		return holds.Consolidate
	case r.Reclaimed:
		return holds.Reclaim
	}
	return holds.Preempt
}

// rebuildMove keeps the place of a pod that leaves to move to a node, "" for one that does not.
func (r *Room) rebuildMove(onNode *api.TaskInfo, node string) {
	t := r.session.findMember(holds.Job(onNode.Job), holds.Pod(onNode.Pod.UID))
	if node == "" || t == nil {
		return
	}
	job := r.session.Jobs[t.Job]
	if hasSuccessorOn(job, t, node) {
		return
	}
	slot := r.session.slotElsewhere(t, node, r.now())
	r.placeholders[slot.Pod] = &placeholder{task: placeholderOf(t)}
	slots := []holds.Slot{slot}
	if lacksMembers(job) {
		slots = append(slots, r.slotsOfRest(job)...)
	}
	r.book.Keep(holds.Hold{Job: holds.Job(t.Job), Priority: r.session.priorityOf(t.Job), Since: r.now(), Slots: slots})
}

// hasSuccessorOn reports whether a task of a job was bound to a node that was made after another
// one was told to leave.
func hasSuccessorOn(job *api.JobInfo, left *api.TaskInfo, node string) bool {
	for _, t := range job.Tasks {
		if t.NodeName == node && t.Pod.DeletionTimestamp == nil && left.Pod.DeletionTimestamp != nil &&
			!t.Pod.CreationTimestamp.Before(left.Pod.DeletionTimestamp) {
			return true
		}
	}
	return false
}
