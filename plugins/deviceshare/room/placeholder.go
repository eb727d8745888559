// SPDX-License-Identifier: Apache-2.0

package room

import (
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
)

// A pod that moves has no successor until its controller makes one. Until then a placeholder on the
// node in question keeps others out: a task that only the node and the devices know. Its job does
// not, so it is neither placed nor counted.

// keepForMoved keeps the places of pods that move and have no successor yet in this session.
func (r *Room) keepForMoved() {
	s := r.session
	used := map[holds.Pod]bool{}
	for _, h := range r.book.InOrder() {
		for i := range h.Slots {
			slot := &h.Slots[i]
			if !slot.AwaitsSuccessor() {
				continue
			}
			used[slot.From.Pod] = true
			status := api.Allocated
			if s.Occupies(slot.From) && slot.Stays {
				if !s.IsLeaving(slot.From) {
					continue // it keeps its place itself
				}
				status = api.Pipelined
			}
			t, n := r.placeholders[slot.From.Pod], s.Nodes[slot.Node]
			if t == nil || n == nil {
				continue
			}
			if err := s.putPlaceholder(t, n, status); err != nil {
				klog.V(3).InfoS("The place of a pod that moves cannot be kept", "pod", slot.Name, "node", slot.Node, "why", err)
			}
		}
	}
	for of := range r.placeholders {
		if !used[of] {
			delete(r.placeholders, of)
		}
	}
}

// putPlaceholder has a node of the session see a placeholder.
func (s *session) putPlaceholder(t *api.TaskInfo, n *api.NodeInfo, status api.TaskStatus) error {
	t.Status, t.NodeName = status, ""
	if err := n.AddTask(t); err != nil {
		return err
	}
	if err := s.devices.Reserve(t, n.Name); err != nil {
		_ = n.RemoveTask(t)
		return err
	}
	return nil
}

// takePlaceholder undoes putPlaceholder.
func (s *session) takePlaceholder(t *api.TaskInfo, n *api.NodeInfo) {
	s.devices.Return(t)
	_ = n.RemoveTask(t)
}

// applyMove binds the successors of pods that have moved, if their job can start with those that
// fit now, and keeps the places of the others.
func (s *session) applyMove(h *holds.Hold) {
	var fit, others []*holds.Slot
	stmt := framework.NewStatement(s.Session)
	for i := range h.Slots {
		slot := &h.Slots[i]
		t, n := s.findMember(h.Job, slot.Pod), s.Nodes[slot.Node]
		if slot.AwaitsSuccessor() || t == nil || isBinding(t) {
			continue
		}
		if !fitsNow(s.Session, t, n) {
			others = append(others, slot)
		} else if err := stmt.Allocate(t, n); err != nil {
			_ = stmt.UnAllocate(t)
			others = append(others, slot)
		} else {
			fit = append(fit, slot)
		}
	}
	switch {
	case len(fit) == 0:
	case s.JobReady(s.Jobs[api.JobID(h.Job)]):
		stmt.Commit()
	default:
		s.undoTrial(stmt, h.Job)
		others = append(others, fit...)
	}
	for _, slot := range others {
		if why := s.keepPlace(framework.NewStatement(s.Session), h, slot); why != "" {
			klog.V(3).InfoS("The place of a pod that moved cannot be kept", "pod", slot.Name, "node", slot.Node, "why", why)
		}
	}
}
