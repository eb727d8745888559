// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"fmt"
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
// which preempt or reclaim can make room, as far as sums tell: an exact answer needs the pods. A
// job that was let in stays so.
func (r *Room) LetIn(held HeldBack, preempts, reclaims bool) {
	s := r.session
	if !s.begun || !preempts && !reclaims {
		return
	}
	sums := cluster{session: s, known: map[string]*api.Resource{}, standings: standingsBy{}}
	qualifies := func(job *api.JobInfo) bool {
		return len(job.Tasks) == 0 && (preempts && sums.wouldHold(job, sums.withoutLessImportant) || reclaims && sums.wouldHold(job, sums.withoutGivers))
	}
	for _, job := range s.heldBack(held, qualifies) {
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

// cluster adds up what the cluster would have if pods left. Known are sums that were added up.
type cluster struct {
	*session
	known     map[string]*api.Resource
	standings standingsBy
}

// wouldHold reports whether there would be what a job asks for.
func (c *cluster) wouldHold(job *api.JobInfo, without func(*api.JobInfo) *api.Resource) bool {
	room, least := without(job), job.GetMinResources()
	if room == nil {
		return false
	}
	enough, _ := least.LessEqualWithDimensionAndResourcesName(room, least)
	return enough
}

// withoutLessImportant returns what there would be without the less important pods of a job's queue
// that may be evicted, nil if there are none.
func (c *cluster) withoutLessImportant(job *api.JobInfo) *api.Resource {
	return c.rememberSum(fmt.Sprintf("preempt %s %d", job.Queue, job.Priority), func() *api.Resource {
		return c.sumWithout(func(other *api.JobInfo, _ *api.TaskInfo) bool {
			return other.Queue == job.Queue && other.Priority < job.Priority
		})
	})
}

// withoutGivers returns what there would be without the pods that other queues would give up for a
// job, nil if there are none.
func (c *cluster) withoutGivers(job *api.JobInfo) *api.Resource {
	least := job.PodGroup.Spec.MinResources
	if least == nil || c.Queues[job.Queue] == nil {
		return nil
	}
	return c.rememberSum(fmt.Sprintf("reclaim %s %s", job.Queue, job.GetMinResources()), func() *api.Resource {
		var names []string
		for name := range *least {
			names = append(names, string(name))
		}
		slices.Sort(names)
		from := c.giversFor(job, c.standings.forResources(c.session, names).ForAmounts(job.Queue, *least))
		return c.sumWithout(func(other *api.JobInfo, t *api.TaskInfo) bool { return from.giveUp(t, other.Queue) })
	})
}

func (c *cluster) rememberSum(key string, add func() *api.Resource) *api.Resource {
	sum, known := c.known[key]
	if !known {
		sum = add()
		c.known[key] = sum
	}
	return sum
}

// sumWithout adds up what is free and what some tasks have that may be evicted, nil if none may.
func (c *cluster) sumWithout(leaves func(*api.JobInfo, *api.TaskInfo) bool) *api.Resource {
	room, any := api.EmptyResource(), false
	for _, n := range c.Nodes {
		room.Add(n.FutureIdle())
	}
	for _, job := range c.Jobs {
		for _, t := range job.Tasks {
			if canBeEvicted(c.Session, t) && t.Preemptable && leaves(job, t) {
				room.Add(t.Resreq)
				any = true
			}
		}
	}
	if !any {
		return nil
	}
	return room
}
