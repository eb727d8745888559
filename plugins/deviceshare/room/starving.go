// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"maps"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"
)

// starvingJobs returns the jobs that may evict others, in their order.
func (p *planner) starvingJobs() (jobs []*api.JobInfo) {
	for _, job := range p.Jobs {
		if !job.IsPending() && p.Queues[job.Queue] != nil && len(job.TaskStatusIndex[api.Pending]) > 0 {
			jobs = append(jobs, job)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	mayHelp := p.findWhomEvictionsHelp()
	jobs = slices.DeleteFunc(jobs, func(job *api.JobInfo) bool {
		if !mayHelp(job) {
			return true
		}
		v := p.JobValid(job)
		return v != nil && !v.Pass || !p.JobStarving(job)
	})
	slices.SortFunc(jobs, func(x, y *api.JobInfo) int {
		return cmp.Or(compareBy(p.JobOrderFn, x, y), cmp.Compare(x.UID, y.UID))
	})
	if p.isReclaim() {
		jobs = p.inQueueOrder(jobs)
	}
	return jobs
}

// findWhomEvictionsHelp looks once who may be evicted at all, and returns whether that may help a
// job. Thousands of jobs may wait in a session that can evict nobody for them.
func (p *planner) findWhomEvictionsHelp() func(*api.JobInfo) bool {
	if p.isConsolidate() {
		lowest := p.lowestByQueue(p.mayMove)
		return func(job *api.JobInfo) bool {
			for _, least := range lowest {
				if least <= job.Priority {
					return true
				}
			}
			return false
		}
	}
	lowest := p.lowestByQueue(p.isVictim)
	if p.isReclaim() {
		maps.DeleteFunc(lowest, func(queue api.QueueID, _ int32) bool { return !p.Queues[queue].Reclaimable() })
		return func(job *api.JobInfo) bool {
			_, own := lowest[job.Queue]
			return len(lowest) > 1 || len(lowest) == 1 && !own
		}
	}
	return func(job *api.JobInfo) bool {
		least, known := lowest[job.Queue]
		return known && least < job.Priority || job.ReadyTaskNum() > 0 // of its own
	}
}

// lowestByQueue returns the lowest priority of the jobs of each queue that have a task which may
// leave.
func (s *session) lowestByQueue(may func(*api.TaskInfo) bool) map[api.QueueID]int32 {
	lowest := map[api.QueueID]int32{}
	for _, job := range s.Jobs {
		if least, known := lowest[job.Queue]; known && least <= job.Priority {
			continue
		}
		for _, t := range job.Tasks {
			if may(t) {
				lowest[job.Queue] = job.Priority
				break
			}
		}
	}
	return lowest
}

// isVictim reports whether a task may be evicted for anybody.
func (s *session) isVictim(t *api.TaskInfo) bool {
	return canBeEvicted(s.Session, t) && t.Preemptable && !isUntouchable(t.Pod)
}

// inQueueOrder returns the jobs of queues that may reclaim: one of each queue in turn, in the order
// of the queues.
func (s *session) inQueueOrder(jobs []*api.JobInfo) (ordered []*api.JobInfo) {
	of := map[api.QueueID][]*api.JobInfo{}
	var order []*api.QueueInfo
	for _, job := range jobs {
		queue := s.Queues[job.Queue]
		if of[job.Queue] == nil {
			if s.Overused(queue) {
				continue
			}
			order = append(order, queue)
		}
		of[job.Queue] = append(of[job.Queue], job)
	}
	slices.SortFunc(order, func(x, y *api.QueueInfo) int {
		return cmp.Or(compareBy(s.QueueOrderFn, x, y), cmp.Compare(x.UID, y.UID))
	})
	for i := 0; len(order) > 0; i++ {
		order = slices.DeleteFunc(order, func(q *api.QueueInfo) bool { return len(of[q.UID]) <= i })
		for _, q := range order {
			ordered = append(ordered, of[q.UID][i])
		}
	}
	return ordered
}

// fromResumed returns jobs in the order in which they are served: first those that an earlier
// session had no time for.
func (r *Room) fromResumed(action string, jobs []*api.JobInfo) []*api.JobInfo {
	i := max(0, slices.IndexFunc(jobs, func(j *api.JobInfo) bool { return j.UID == r.resumeAt[action] }))
	delete(r.resumeAt, action)
	return slices.Concat(jobs[i:], jobs[:i])
}

// inTaskOrder returns the tasks of a job that wait, the first to be served first.
func (s *session) inTaskOrder(job *api.JobInfo) []*api.TaskInfo {
	tasks := s.waitingTasks(job)
	slices.SortStableFunc(tasks, func(x, y *api.TaskInfo) int { return compareBy(s.TaskOrderFn, x, y) })
	return tasks
}

// compareBy compares two values by a function of Volcano's that says whether the first one comes
// before the second.
func compareBy[T any](comesBefore func(x, y any) bool, x, y T) int {
	switch {
	case comesBefore(x, y):
		return -1
	case comesBefore(y, x):
		return 1
	}
	return 0
}
