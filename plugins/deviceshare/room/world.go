// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/sharing"
	"deviceshare/sharing/plan"
)

// trialWorkers is how many workers ask nodes at once whether they may take a pod.
const trialWorkers = 16

// world is a session as the planner sees it for one pod.
type world struct {
	*session
	cluster plan.World
	wish    plan.Wish
	job     *api.JobInfo
	task    *api.TaskInfo
	// inJob says that pods of the job itself are evicted, and not those of other jobs of its queue.
	inJob bool
	// wall is the time of day in seconds.
	wall      int64
	resources []string
	levels    map[int32]int
	gangs     map[api.JobID]*gang
	budgets   []*budget
	// tasks are those that may be evicted.
	tasks map[sharing.Owner]*api.TaskInfo
	// kept are tasks that other plugins keep, and asked says that they were asked for each task.
	kept  map[api.TaskID]bool
	asked bool
}

// gang is a job of which pods may be evicted.
type gang struct {
	plan.Gang
	running int
	roles   []string
}

// worldFor returns the world for a pod that may evict pods of other jobs of its queue, or of its
// job. It is nil if no pod is less important.
func (p *preemption) worldFor(job *api.JobInfo, t *api.TaskInfo, inJob bool) *world {
	resources := resourcesOf(t)
	w := p.world
	if w == nil || inJob || w.job.Queue != job.Queue || w.job.Priority != job.Priority || !slices.Equal(w.resources, resources) {
		w = &world{session: p.session, job: job, task: t, inJob: inJob, wall: p.room.wall(), resources: resources, kept: map[api.TaskID]bool{}}
		if w.rankPriorities(); len(w.levels) == 0 {
			return nil
		}
		w.buildNodes(p.room.readBudgets())
		if p.world = w; inJob {
			p.world = nil
		}
	}
	w.job, w.task = job, t
	w.wish, _ = p.devices.Wish(t)
	w.wish.Takes, w.wish.Level = w.amountsOf(t.InitResreq), plan.Levels
	return w
}

// noteEvictions brings the world up to date with a plan that was carried out on a node.
func (p *preemption) noteEvictions(w *world, n int, evicted []*plan.Victim) {
	hasBudget := slices.ContainsFunc(evicted, func(v *plan.Victim) bool { return len(v.Budgets) > 0 })
	if w != p.world || hasBudget || w.hasGangOn(w.NodeList[n]) {
		p.world = nil // more than one node has changed
		return
	}
	w.cluster.Nodes[n] = w.buildNode(w.NodeList[n])
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

// removeKept takes tasks out of the world that other plugins keep.
func (w *world) removeKept(kept map[api.TaskID]bool) {
	maps.Copy(w.kept, kept)
	w.buildNodes(w.budgets)
}

// excludeRoomy excludes the nodes that have room without evictions: other plugins refuse them.
func (w *world) excludeRoomy() {
	for i, n := range w.cluster.Nodes {
		w.wish.Excluded[i] = w.wish.Excluded[i] || n.Fits(&w.wish)
	}
}

// tasksOf returns the tasks of victims.
func (w *world) tasksOf(victims []*plan.Victim) (tasks []*api.TaskInfo) {
	for _, v := range victims {
		tasks = append(tasks, w.tasks[v.Owner])
	}
	return tasks
}

// resourcesOf returns the names of what a task asks for.
func resourcesOf(t *api.TaskInfo) (names []string) {
	for _, name := range t.InitResreq.ResourceNames() {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// amountsOf returns how much there is of the resources that the pod asks for. It counts in whole
// units, as Volcano reads them: a thousandth of a CPU, a byte.
func (w *world) amountsOf(r *api.Resource) []int64 {
	amounts := make([]int64, len(w.resources))
	for i, name := range w.resources {
		amounts[i] = int64(math.Round(r.Get(corev1.ResourceName(name))))
	}
	return amounts
}

// excludeNodes finds the nodes that refuse the pod whoever leaves. PrePredicateFn has run for it.
func (w *world) excludeNodes() {
	w.wish.Excluded = make([]bool, len(w.NodeList))
	allowed := map[string]bool{}
	for _, n := range w.FilterOutUnschedulableAndUnresolvableNodesForTask(w.task) {
		allowed[n.Name] = true
	}
	workqueue.ParallelizeUntil(context.Background(), trialWorkers, len(w.NodeList), func(i int) {
		n := w.NodeList[i]
		w.wish.Excluded[i] = !allowed[n.Name] || !w.IsUsable(n.Name) || !isInShard(w.Session, n) || !w.devices.Serves(w.task, n) ||
			w.PredicateForPreemptAction(w.task, n) != nil
	})
}

// rankPriorities ranks the priorities of those that may be evicted. Of too many, the lowest count
// as one.
func (w *world) rankPriorities() {
	known := map[int32]bool{}
	jobs := w.Jobs
	if w.inJob {
		jobs = map[api.JobID]*api.JobInfo{w.job.UID: w.job}
	}
	for _, job := range jobs {
		for _, t := range job.Tasks {
			if level, may := w.priorityAsVictim(t); may {
				known[level] = true
			}
		}
	}
	all := slices.Sorted(maps.Keys(known))
	w.levels = map[int32]int{}
	for i, p := range all {
		w.levels[p] = max(0, plan.Levels-len(all)+i)
	}
}

// priorityAsVictim returns the priority by which a task is compared with the pod that waits, and
// whether it may be evicted for it.
func (w *world) priorityAsVictim(t *api.TaskInfo) (priority int32, may bool) {
	job := w.Jobs[t.Job]
	switch {
	case job == nil || !canBeEvicted(w.Session, t) || !t.Preemptable || isUntouchable(t.Pod) || w.kept[t.UID]:
		return 0, false
	case w.inJob:
		return t.Priority, t.Job == w.job.UID && t.Priority < w.task.Priority
	}
	return job.Priority, job.Queue == w.job.Queue && job.UID != w.job.UID && job.Priority < w.job.Priority
}

// buildNodes makes the nodes of the world.
func (w *world) buildNodes(budgets []*budget) {
	w.cluster.Nodes, w.tasks, w.gangs, w.budgets = nil, map[sharing.Owner]*api.TaskInfo{}, map[api.JobID]*gang{}, budgets
	for _, n := range w.NodeList {
		w.cluster.Nodes = append(w.cluster.Nodes, w.buildNode(n))
	}
	for _, g := range w.gangs {
		g.Stays = len(g.Members) < g.running
	}
}

// buildNode makes one node, with the pods on it that may be evicted.
func (w *world) buildNode(n *api.NodeInfo) *plan.Node {
	var victims []*plan.Victim
	for _, onNode := range tasksInOrder(n) {
		t := w.findMember(holds.Job(onNode.Job), holds.Pod(onNode.Pod.UID))
		if v := w.describeVictim(t); v != nil {
			victims = append(victims, v)
			w.tasks[v.Owner] = t
		}
	}
	return plan.NewNode(n.Name, w.devices.Future(n.Name), w.amountsOf(n.FutureIdle()), w.amountsOf(n.Allocatable), victims)
}

// tasksInOrder returns the tasks on a node by name.
func tasksInOrder(n *api.NodeInfo) []*api.TaskInfo {
	return slices.SortedFunc(maps.Values(n.Tasks), func(x, y *api.TaskInfo) int { return cmp.Compare(nameOf(x), nameOf(y)) })
}

// describeVictim returns a task as the planner sees it, nil if it may not be evicted.
func (w *world) describeVictim(t *api.TaskInfo) *plan.Victim {
	if t == nil {
		return nil
	}
	priority, may := w.priorityAsVictim(t)
	if !may {
		return nil
	}
	v := &plan.Victim{Owner: sharing.Owner(t.Pod.UID), Level: w.levels[priority], Takes: w.amountsOf(t.Resreq), Grace: graceOf(t.Pod)}
	if started := t.Pod.Status.StartTime; started != nil {
		v.Age = max(0, w.wall-started.Unix())
	}
	for _, budget := range w.budgets {
		if budget.countsPod(t.Pod) {
			v.Budgets = append(v.Budgets, &budget.Budget)
		}
	}
	if g := w.gangOf(w.Jobs[t.Job]); g != nil {
		v.Gang, v.Role = &g.Gang, slices.Index(g.roles, t.TaskRole)
		if v.Role < 0 {
			v.Role = len(g.roles)
		}
		g.Members = append(g.Members, v)
	}
	return v
}

// gangOf returns the gang of a job, nil if its pods do not need each other. Pods that leave for one
// of their own job do not count: it takes the place of one of them.
func (w *world) gangOf(job *api.JobInfo) *gang {
	if w.inJob || job.MinAvailable <= 1 {
		return nil
	}
	g := w.gangs[job.UID]
	if g != nil {
		return g
	}
	g = &gang{}
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
		for _, t := range job.TaskStatusIndex[status] {
			if t.TaskRole == role {
				n++
			}
		}
	}
	return n
}
