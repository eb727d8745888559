// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"
)

// HeldBack knows the jobs that no action looks at because they wait to be let into their queue.
type HeldBack interface {
	// IsHeldBackBySum reports whether nothing but a sum over the whole cluster keeps a job out. It
	// asks plugins that count the job then.
	IsHeldBackBySum(*api.JobInfo) bool
}

// maxLetIn is how many jobs that wait to be let in an action may make room for in one session.
const maxLetIn = 64

// LetIn lets jobs in that have no pods yet, because their controller makes them afterwards, and for
// which preempt can make room, as far as sums tell: an exact answer needs the pods. A job that was
// let in stays so.
func (r *Room) LetIn(held HeldBack) {
	s := r.session
	if !s.begun {
		return
	}
	for _, job := range s.heldBack(held, func(job *api.JobInfo) bool { return len(job.Tasks) == 0 && s.sumsMakeRoom(job) }) {
		letJobIn(job)
		s.JobEnqueued(job)
	}
}

// heldBack returns jobs that only a sum keeps out and that qualify, the most important ones first.
func (s *session) heldBack(held HeldBack, qualifies func(*api.JobInfo) bool) (jobs []*api.JobInfo) {
	var waiting []*api.JobInfo
	for _, job := range s.Jobs {
		if job.PodGroup != nil && job.IsPending() {
			waiting = append(waiting, job)
		}
	}
	slices.SortFunc(waiting, func(x, y *api.JobInfo) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.UID, y.UID))
	})
	for _, job := range waiting {
		if len(jobs) == maxLetIn {
			break
		}
		if !qualifies(job) {
			continue
		}
		bySum, known := s.heldBySum[job.UID]
		if !known {
			bySum = held.IsHeldBackBySum(job)
			s.heldBySum[job.UID] = bySum
		}
		if bySum {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// sumsMakeRoom reports whether the cluster would have what a job asks for if the less important
// pods of its queue were gone that may be evicted.
func (s *session) sumsMakeRoom(job *api.JobInfo) bool {
	room := api.EmptyResource()
	for _, n := range s.Nodes {
		room.Add(n.FutureIdle())
	}
	victims := false
	for _, other := range s.Jobs {
		if other.Queue != job.Queue || other.Priority >= job.Priority {
			continue
		}
		for _, t := range other.Tasks {
			if canBeEvicted(s.Session, t) && t.Preemptable {
				room.Add(t.Resreq)
				victims = true
			}
		}
	}
	least := job.GetMinResources()
	enough, _ := least.LessEqualWithDimensionAndResourcesName(room, least)
	return victims && enough
}
