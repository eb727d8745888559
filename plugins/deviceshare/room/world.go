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
	"deviceshare/sharing/quota"
)

// trialWorkers is how many workers ask nodes at once whether they may take a pod.
const trialWorkers = 16

// world is a session as the planner sees it for pods that start together.
type world struct {
	*session
	cluster plan.World
	// pods are what each of them asks for, equal if they are alike. kinds has one of each kind.
	pods  []*plan.Wish
	kinds map[*plan.Wish]*api.TaskInfo
	job   *api.JobInfo
	// account is whose limits the pods count for.
	account quota.Account
	// inJobOf is the task for which pods of its own job are evicted, nil if it is those of other
	// jobs. from says what other queues give up, nil if the pods are of the same queue.
	inJobOf *api.TaskInfo
	from    *givers
	// movers are the pods that may move, nil if others leave.
	movers *movers
	// wall is the time of day in seconds.
	wall      int64
	resources []string
	levels    map[int32]int
	gangs     map[api.JobID]*gang
	budgets   []*budget
	// tasks are those that may be evicted.
	tasks map[sharing.Owner]*api.TaskInfo
	// elsewhere is what tasks ask for where they move, by what they look like.
	elsewhere map[string]*plan.Wish
	// kept are tasks that other plugins keep, and asked says that they were asked for each task.
	kept  map[api.TaskID]bool
	asked bool
}

// worldFor returns the world for pods that may evict pods of other jobs of its queue, of its job,
// or of other queues. It is nil if none of them may be evicted, with what people are told of it.
func (p *planner) worldFor(job *api.JobInfo, tasks []*api.TaskInfo, inJob bool) (w *world, why string) {
	movers, resources := p.moversFor(job), resourcesOf(tasks)
	if movers != nil {
		resources = slices.Compact(slices.Sorted(slices.Values(slices.Concat(resources, movers.resources))))
	}
	var from *givers
	if p.isReclaim() {
		from = p.giversFor(job, p.standings.forResources(p.session, resources).ForTasks(job.Queue, tasks))
	}
	account := p.devices.AccountOf(tasks)
	if w = p.world; w == nil || inJob || !w.servesNext(job, account, resources, from, movers) {
		w = &world{session: p.session, job: job, account: account, wall: p.room.wall(), resources: resources,
			kept: map[api.TaskID]bool{}, elsewhere: map[string]*plan.Wish{}}
		if p.world = w; inJob {
			w.inJobOf, p.world = tasks[0], nil
		}
		w.from, w.movers = from, movers
		if w.rankPriorities(); len(w.levels) == 0 {
			p.world = nil
			return nil, w.from.explainRefusal()
		}
		w.buildNodes(p.room.readBudgets())
		if movers != nil {
			if no := w.cluster.ExplainNoMoves(); no != nil {
				p.world = nil
				return nil, no.Advice()
			}
		}
	}
	w.job, w.cluster.Lacks, w.cluster.MostMoves = job, p.devices.Lacks(tasks), p.moves.Moves*len(tasks)
	w.describePods(tasks)
	return w, ""
}

// servesNext reports whether the world serves another job as well, with its terms.
func (w *world) servesNext(job *api.JobInfo, account quota.Account, resources []string, from *givers, movers *movers) bool {
	switch {
	case movers != nil:
		return w.movers == movers && slices.Equal(w.resources, resources)
	case w.job.Queue != job.Queue || !w.account.Equal(account) || !slices.Equal(w.resources, resources):
		return false
	case from == nil:
		return w.from == nil && w.job.Priority == job.Priority
	}
	return w.from.takeTerms(from)
}

// describePods notes what pods ask for.
func (w *world) describePods(tasks []*api.TaskInfo) {
	w.pods, w.kinds = nil, map[*plan.Wish]*api.TaskInfo{}
	known := map[string]*plan.Wish{}
	for _, t := range tasks {
		look := w.lookOf(t)
		if known[look] == nil {
			wish, _ := w.devices.Wish(t)
			wish.Takes, wish.Level = w.amountsOf(t.InitResreq), plan.Levels
			known[look], w.kinds[&wish] = &wish, t
		}
		w.pods = append(w.pods, known[look])
	}
}

// placesOf returns where a plan has tasks go, in the order in which they get their devices.
func (w *world) placesOf(found *plan.Plan, tasks []*api.TaskInfo) (places []place) {
	for _, i := range found.Order {
		n := found.Places[i].Node
		places = append(places, place{task: tasks[i], wish: w.pods[i], node: w.NodeList[n], n: n})
	}
	return places
}

// noteEvictions brings the world up to date with a plan that was carried out.
func (p *planner) noteEvictions(w *world, found *plan.Plan, victims, tasks []*api.TaskInfo) {
	for _, st := range p.standings {
		st.Note(victims, tasks)
	}
	hasBudget := slices.ContainsFunc(found.Evict, func(v *plan.Victim) bool { return len(v.Budgets) > 0 })
	isCovered := len(w.cluster.Lacks) > 0 && len(found.Evict) > 0
	hasGang := slices.ContainsFunc(found.Places, func(at plan.Place) bool { return w.hasGangOn(w.NodeList[at.Node]) })
	if len(found.Moves) > 0 {
		p.noteMoves(w, found)
	}
	if w != p.world || w.movers != nil || hasBudget || hasGang || isCovered {
		p.world = nil // more than these nodes have changed
		return
	}
	for _, at := range found.Places {
		w.cluster.Nodes[at.Node] = w.buildNode(w.NodeList[at.Node])
	}
}

// removeKept takes tasks out of the world that other plugins keep.
func (w *world) removeKept(kept map[api.TaskID]bool) {
	maps.Copy(w.kept, kept)
	w.buildNodes(w.budgets)
}

// excludeRoomy excludes the nodes that have room without evictions: other plugins refuse them.
func (w *world) excludeRoomy() {
	for wish := range w.kinds {
		for i, n := range w.cluster.Nodes {
			wish.Excluded[i] = wish.Excluded[i] || n.Fits(wish)
		}
	}
}

// tasksOf returns the tasks of victims.
func (w *world) tasksOf(victims []*plan.Victim) (tasks []*api.TaskInfo) {
	for _, v := range victims {
		tasks = append(tasks, w.tasks[v.Owner])
	}
	return tasks
}

// resourcesOf returns the names of what tasks ask for.
func resourcesOf(tasks []*api.TaskInfo) (names []string) {
	for _, t := range tasks {
		for _, name := range t.InitResreq.ResourceNames() {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
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

// excludeNodes finds the nodes that refuse the pods whoever leaves. It returns false if one of them
// cannot go anywhere.
func (w *world) excludeNodes() bool {
	for wish, t := range w.kinds {
		if w.PrePredicateFn(t) != nil {
			return false
		}
		wish.Excluded = w.nodesThatRefuse(t)
	}
	return true
}

// nodesThatRefuse returns which nodes refuse a task whoever leaves. PrePredicateFn has run for it.
func (s *session) nodesThatRefuse(t *api.TaskInfo) []bool {
	refuse := make([]bool, len(s.NodeList))
	allowed := map[string]bool{}
	for _, n := range s.FilterOutUnschedulableAndUnresolvableNodesForTask(t) {
		allowed[n.Name] = true
	}
	workqueue.ParallelizeUntil(context.Background(), trialWorkers, len(s.NodeList), func(i int) {
		n := s.NodeList[i]
		refuse[i] = !allowed[n.Name] || !s.IsUsable(n.Name) || !isInShard(s.Session, n) || !s.devices.Serves(t, n) ||
			s.PredicateForPreemptAction(t, n) != nil
	})
	return refuse
}

// rankPriorities ranks the priorities of those that may be evicted. Of too many, the lowest count
// as one.
func (w *world) rankPriorities() {
	known := map[int32]bool{}
	jobs := w.Jobs
	if w.inJobOf != nil {
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
	case job == nil || !w.isVictim(t) || w.kept[t.UID]:
		return 0, false
	case w.inJobOf != nil:
		return t.Priority, t.Job == w.job.UID && t.Priority < w.inJobOf.Priority
	case w.from != nil:
		return job.Priority, w.from.giveUp(t, job.Queue)
	case w.movers != nil:
		return job.Priority, w.movers.mayInclude(t)
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
	v.Restart = w.movabilityOf(t).RestartCost
	v.Frees = w.devices.Frees(t, w.account)
	if started := t.Pod.Status.StartTime; started != nil {
		v.Age = max(0, w.wall-started.Unix())
	}
	v.Budgets = budgetsOf(w.budgets, t.Pod)
	switch {
	case w.from != nil:
		w.from.describeVictim(v, t, w.Jobs[t.Job].Queue)
	case w.movers != nil:
		v.Elsewhere, v.Frees = w.wishElsewhere(t, v.Takes), nil
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
