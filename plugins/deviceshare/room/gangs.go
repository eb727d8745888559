// SPDX-License-Identifier: Apache-2.0

package room

import (
	"maps"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing/plan"
)

// gang is a job of which pods may be evicted.
type gang struct {
	plan.Gang
	running int
	roles   []string
}

// hasGangOn reports whether members of gangs on a node may be evicted.
func (w *world) hasGangOn(n *api.NodeInfo) bool {
	for _, t := range n.Tasks {
		if w.gangs[t.Job] != nil {
			return true
		}
	}
	return false
}

// gangOf returns the gang of a job, nil if its pods do not need each other. Pods that leave for one
// of their own job do not count: it takes the place of one of them.
func (w *world) gangOf(job *api.JobInfo) *gang {
	if w.inJobOf != nil || job.MinAvailable <= 1 {
		return nil
	}
	g := w.gangs[job.UID]
	if g != nil {
		return g
	}
	g = &gang{}
	g.Waits = w.movers != nil
	g.Spare = int(max(0, job.ReadyTaskNum()-job.MinAvailable))
	for _, status := range []api.TaskStatus{api.Bound, api.Binding, api.Running, api.Allocated} {
		g.running += len(job.TaskStatusIndex[status])
	}
	if job.MinAvailable >= job.TaskMinAvailableTotal {
		for _, role := range slices.Sorted(maps.Keys(job.TaskMinAvailable)) {
			g.roles = append(g.roles, role)
			g.Roles = append(g.Roles, max(0, readyOfRole(job, role)-int(job.TaskMinAvailable[role])))
		}
	}
	w.gangs[job.UID] = g
	return g
}

// readyOfRole returns how many tasks of a role count as ready.
func readyOfRole(job *api.JobInfo, role string) (n int) {
	for _, status := range []api.TaskStatus{api.Bound, api.Binding, api.Running, api.Allocated, api.Succeeded} {
		n += countOfRole(job.TaskStatusIndex[status], role)
	}
	return n
}

func countOfRole(tasks map[api.TaskID]*api.TaskInfo, role string) (n int) {
	for _, t := range tasks {
		if t.TaskRole == role {
			n++
		}
	}
	return n
}

// lacksMembers reports whether a job has too few tasks that are ready, or too few of a role.
func lacksMembers(job *api.JobInfo) bool {
	return job.ReadyTaskNum() < job.MinAvailable || !job.CheckTaskReady()
}

// missingTasks returns those of the tasks that wait that a job needs to start: of each role as many
// as it needs, then the first ones.
func missingTasks(job *api.JobInfo, waiting []*api.TaskInfo) (missing []*api.TaskInfo) {
	short := int(job.MinAvailable - job.ReadyTaskNum() - job.WaitingTaskNum())
	if job.MinAvailable >= job.TaskMinAvailableTotal {
		for role, least := range job.TaskMinAvailable {
			lacks := int(least) - readyOfRole(job, role) - countOfRole(job.TaskStatusIndex[api.Pipelined], role)
			for _, t := range waiting {
				if t.TaskRole == role && lacks > 0 {
					missing = append(missing, t)
					lacks--
				}
			}
		}
	}
	for _, t := range waiting {
		if len(missing) < short && !slices.Contains(missing, t) {
			missing = append(missing, t)
		}
	}
	slices.SortFunc(missing, func(x, y *api.TaskInfo) int { return slices.Index(waiting, x) - slices.Index(waiting, y) })
	return missing
}
