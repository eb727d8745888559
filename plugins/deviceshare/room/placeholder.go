// SPDX-License-Identifier: Apache-2.0

package room

import (
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/sharing"
)

// placeholder keeps others out of the place of a pod that moves until its successor is placed: a
// task that only the node and the devices know. Its job does not, so nobody places or counts it.
type placeholder struct {
	task *api.TaskInfo
	// placement is what it gets of the devices, nil if any will do.
	placement *sharing.Placement
	// node is where the open session sees it, nil if it does not.
	node *api.NodeInfo
}

// keepForMoved keeps the places of pods that move in this session.
func (r *Room) keepForMoved() {
	used := map[holds.Pod]bool{}
	for _, p := range r.placeholders {
		p.node = nil // that of an earlier session
	}
	for _, h := range r.book.InOrder() {
		for i := range h.Slots {
			if slot := &h.Slots[i]; slot.From != nil && !isBinding(r.session.findMember(h.Job, slot.Pod)) {
				used[slot.From.Pod] = true
				r.keepSlot(slot)
			}
		}
	}
	for of := range r.placeholders {
		if !used[of] {
			delete(r.placeholders, of)
		}
	}
}

// keepSlot keeps one place. A pod that is still there keeps its place itself.
func (r *Room) keepSlot(slot *holds.Slot) {
	s := r.session
	p, n := r.placeholders[slot.From.Pod], s.Nodes[slot.Node]
	isThere := s.Occupies(slot.From)
	_, leaves := s.LeavesSince(slot.From)
	if p == nil || n == nil || isThere && slot.Stays && !leaves {
		return
	}
	status := api.Allocated
	if isThere && slot.Stays {
		status = api.Pipelined
	}
	if err := s.putPlaceholder(p, n, status, !isThere); err != nil {
		klog.V(3).InfoS("The place of a pod that moves cannot be kept", "pod", slot.Name, "node", slot.Node, "why", err)
	}
}

// putPlaceholder has a node of the session see a placeholder. Counts says that its queue is charged
// with it.
func (s *session) putPlaceholder(p *placeholder, n *api.NodeInfo, status api.TaskStatus, counts bool) error {
	p.task.Status, p.task.NodeName = status, ""
	if err := n.AddTask(p.task); err != nil {
		return err
	}
	if err := s.devices.Reserve(p.task, n.Name, p.placement, counts); err != nil {
		_ = n.RemoveTask(p.task)
		return err
	}
	p.node = n
	return nil
}

// takePlaceholder undoes putPlaceholder, if it was done.
func (s *session) takePlaceholder(p *placeholder) {
	if p == nil || p.node == nil {
		return
	}
	s.devices.Return(p.task)
	_ = p.node.RemoveTask(p.task)
	p.node = nil
}

// applyMove binds the successors of pods that have moved, if their job can start with those that
// fit now, and keeps the places of the others.
func (r *Room) applyMove(h *holds.Hold) {
	s := r.session
	var fit, others []*holds.Slot
	stmt := framework.NewStatement(s.Session)
	for i := range h.Slots {
		slot := &h.Slots[i]
		t, n := s.findMember(h.Job, slot.Pod), s.Nodes[slot.Node]
		if slot.AwaitsSuccessor() || t == nil || isBinding(t) {
			continue
		}
		if slot.From != nil {
			s.takePlaceholder(r.placeholders[slot.From.Pod])
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
			klog.V(3).InfoS("The successor of a pod that moved has no place yet", "pod", slot.Name, "node", slot.Node, "why", why)
			if slot.From != nil {
				r.keepSlot(slot)
			}
		}
	}
}
