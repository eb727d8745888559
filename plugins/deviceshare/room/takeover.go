// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
)

// maxTakers is how many jobs a session tries to give places that are kept for others.
const maxTakers = 16

// takeOverPlaces gives more important jobs of the same queue the places that are kept for others:
// room is being made there already, and nobody has to be evicted again.
func (r *Room) takeOverPlaces() {
	if r.book.Len() == 0 {
		return
	}
	s := r.session
	s.devices.JudgeFuture(true)
	defer s.devices.JudgeFuture(false)
	for _, job := range s.findTakers(r.book) {
		slots, robbed := s.placesKeptFor(job, r.book)
		if len(slots) == 0 {
			continue
		}
		h := holds.Hold{Job: holds.Job(job.UID), Priority: job.Priority, Since: r.now(), Slots: slots}
		for _, from := range robbed {
			r.noteEnd(&holds.End{Hold: *r.book.Of(from), Outcome: holds.Failed, Why: "a more important job takes its place: " + string(job.UID)})
			r.book.TakeOver(from, h, r.now())
		}
	}
}

// findTakers returns the jobs that may take what is kept for others, the most important first.
func (s *session) findTakers(book *holds.Book) []*api.JobInfo {
	kept := book.InOrder()
	lowest := kept[len(kept)-1].Priority
	var takers []*api.JobInfo
	for _, job := range s.Jobs {
		if job.Priority <= lowest || job.IsPending() || book.Of(holds.Job(job.UID)) != nil || len(job.TaskStatusIndex[api.Pending]) == 0 {
			continue
		}
		if v := s.JobValid(job); (v == nil || v.Pass) && s.JobStarving(job) {
			takers = append(takers, job)
		}
	}
	slices.SortFunc(takers, func(x, y *api.JobInfo) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.UID, y.UID))
	})
	return takers[:min(len(takers), maxTakers)]
}

// placesKeptFor tries whether a job could start on the places that are kept for less important ones
// of its queue. It returns the slots and the jobs that lose theirs, none if it could not.
func (s *session) placesKeptFor(job *api.JobInfo, book *holds.Book) (slots []holds.Slot, robbed []holds.Job) {
	owners := map[string][]holds.Job{}
	var nodes []*api.NodeInfo
	for _, h := range book.InOrder() {
		if owner := s.Jobs[api.JobID(h.Job)]; h.IsMove() || h.Priority >= job.Priority || owner == nil || owner.Queue != job.Queue {
			continue
		}
		for i := range h.Slots {
			if n := s.Nodes[h.Slots[i].Node]; n != nil && !slices.Contains(nodes, n) {
				nodes = append(nodes, n)
			}
			owners[h.Slots[i].Node] = append(owners[h.Slots[i].Node], h.Job)
		}
	}
	stmt := framework.NewStatement(s.Session)
	defer s.undoTrial(stmt, holds.Job(job.UID))
	for _, t := range s.waitingTasks(job) {
		if !s.JobStarving(job) {
			break
		}
		if s.PrePredicateFn(t) != nil || s.fitsElsewhere(t, nodes) {
			return nil, nil
		}
		i := slices.IndexFunc(nodes, func(n *api.NodeInfo) bool {
			return hasFutureRoom(t, n) && s.PredicateForAllocateAction(t, n) == nil
		})
		if i < 0 || stmt.Pipeline(t, nodes[i].Name, true) != nil {
			return nil, nil
		}
		slots = append(slots, holds.Slot{Pod: holds.Pod(t.Pod.UID), Name: nameOf(t), Node: nodes[i].Name, Shape: s.shapeOf(t)})
		for _, owner := range owners[nodes[i].Name] {
			if !slices.Contains(robbed, owner) {
				robbed = append(robbed, owner)
			}
		}
	}
	if s.JobStarving(job) || !s.JobPipelined(job) {
		return nil, nil
	}
	return slots, robbed
}

// fitsElsewhere reports whether a task fits a node on which no places are kept: then allocate
// places it.
func (s *session) fitsElsewhere(t *api.TaskInfo, kept []*api.NodeInfo) bool {
	return slices.ContainsFunc(s.NodeList, func(n *api.NodeInfo) bool {
		return !slices.Contains(kept, n) && t.InitResreq.LessEqual(n.Idle, api.Zero) && s.PredicateForAllocateAction(t, n) == nil
	})
}

// waitingTasks returns the tasks of a job that wait, in their order.
func (s *session) waitingTasks(job *api.JobInfo) []*api.TaskInfo {
	var tasks []*api.TaskInfo
	for _, t := range job.TaskStatusIndex[api.Pending] {
		if isWaiting(t) {
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, func(x, y *api.TaskInfo) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(nameOf(x), nameOf(y)))
	})
	return tasks
}
