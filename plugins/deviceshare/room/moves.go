// SPDX-License-Identifier: Apache-2.0

package room

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/sharing"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/request"
)

// MoveLimits say when and how many pods move.
type MoveLimits struct {
	// After is how long a pod has waited at least when others move for it.
	After time.Duration
	// Moves is how many pods move at most for each pod that waits, and Jobs for how many jobs of a
	// queue at a time.
	Moves, Jobs int
	// Rest is for how long a pod that has moved is left alone.
	Rest time.Duration
}

// DefaultMoveLimits are those of an action without arguments.
func DefaultMoveLimits() MoveLimits {
	return MoveLimits{After: time.Minute, Moves: 8, Jobs: 4, Rest: time.Hour}
}

// Consolidate makes room by having pods move that say that they may, to places that are free. Only
// for jobs that have waited, and for a few jobs of a queue at a time.
func (r *Room) Consolidate(limits MoveLimits) {
	s := r.session
	if !s.begun {
		return
	}
	served, _ := r.planEvictions(holds.Consolidate, limits)
	clear(s.judged)
	if len(served) > 0 {
		r.publishVictims()
	}
}

// isConsolidate reports whether pods move.
func (p *planner) isConsolidate() bool { return p.action == holds.Consolidate }

// movers are the pods that may move for a job.
type movers struct {
	*planner
	job *api.JobInfo
	// resources are what they take.
	resources []string
}

// moversFor returns the pods that may move for a job, nil if the action moves none.
func (p *planner) moversFor(job *api.JobInfo) *movers {
	if !p.isConsolidate() {
		return nil
	}
	if p.world != nil && p.world.movers.serveNext(job) {
		return p.world.movers
	}
	m := &movers{planner: p, job: job}
	m.resources = resourcesOf(m.listTasks())
	return m
}

// serveNext reports whether the same pods may move for another job.
func (m *movers) serveNext(job *api.JobInfo) bool {
	return m.job.Priority == job.Priority && m.job.ReadyTaskNum() == 0 && job.ReadyTaskNum() == 0
}

// mayInclude reports whether a task may move for the job.
func (m *movers) mayInclude(t *api.TaskInfo) bool {
	return t.Job != m.job.UID && m.Jobs[t.Job].Priority <= m.job.Priority && m.mayMove(t)
}

// mayMove reports whether a task may move for anybody: it says so, somebody makes it again, none of
// its job waits, its job could start, and it has not moved a short time ago.
func (p *planner) mayMove(t *api.TaskInfo) bool {
	if !p.isVictim(t) || !p.movabilityOf(t).MayMove || metav1.GetControllerOf(t.Pod) == nil {
		return false
	}
	job := p.Jobs[t.Job]
	return len(job.TaskStatusIndex[api.Pending]) == 0 && p.room.book.Of(holds.Job(job.UID)) == nil &&
		!p.room.hasJustMoved(t, p.moves.Rest) && p.hasAllMembers(job)
}

// hasAllMembers reports whether a job has all pods that it needs to start. One of whose pods some
// have ended for good goes on with the others, but whoever of them is made again waits for ever.
// Each job is looked at once in a session, which takes the longer the more pods it has: in this
// action only moves end pods, and who moves has a hold.
func (p *planner) hasAllMembers(job *api.JobInfo) bool {
	complete, known := p.complete[job.UID]
	if !known {
		complete = !lacksMembers(job)
		p.complete[job.UID] = complete
	}
	return complete
}

// movabilityOf returns what a task says of being ended to make room, or its namespace.
func (s *session) movabilityOf(t *api.TaskInfo) request.Movability {
	labels, known := s.namespaceLabels[t.Namespace]
	if factory := s.InformerFactory(); !known && factory != nil {
		if namespace, err := factory.Core().V1().Namespaces().Lister().Get(t.Namespace); err == nil {
			labels = namespace.Labels
		}
		s.namespaceLabels[t.Namespace] = labels
	}
	return request.MovabilityOf(t.Pod.Annotations, labels)
}

// movedTimes are when pods of a job moved first and last, in seconds of the time of day.
type movedTimes struct{ first, last int64 }

// hasJustMoved reports whether a task may be the successor of one that has moved: it was made a
// short time ago, and after the first of its job moved, or before this process could know.
func (r *Room) hasJustMoved(t *api.TaskInfo, rest time.Duration) bool {
	made := t.Pod.CreationTimestamp.Unix()
	at, known := r.movedAt[t.Job]
	return r.wall() < made+int64(rest.Seconds()) && (made < r.began || known && made >= at.first)
}

// noteMoves remembers of which jobs pods move, and forgets those that have rested.
func (r *Room) noteMoves(jobs []api.JobID, rest time.Duration) {
	now := r.wall()
	maps.DeleteFunc(r.movedAt, func(_ api.JobID, at movedTimes) bool { return now >= at.last+2*int64(rest.Seconds()) })
	for _, job := range jobs {
		at, known := r.movedAt[job]
		if at.last = now; !known {
			at.first = now
		}
		r.movedAt[job] = at
	}
}

// mayMoveFor reports whether pods may move for a job now: its pods have waited, and not too many
// move for its queue.
func (p *planner) mayMoveFor(job *api.JobInfo) bool {
	served := 0
	for _, h := range p.room.book.InOrder() {
		if of := p.Jobs[api.JobID(h.Job)]; h.MovesFor() && of != nil && of.Queue == job.Queue {
			served++
		}
	}
	return served < p.moves.Jobs && !slices.ContainsFunc(p.waitingTasks(job), func(t *api.TaskInfo) bool {
		return p.room.wall()-t.Pod.CreationTimestamp.Unix() < int64(p.moves.After.Seconds())
	})
}

// listTasks returns the tasks that may move.
func (m *movers) listTasks() (tasks []*api.TaskInfo) {
	for _, job := range m.Jobs {
		for _, t := range job.Tasks {
			if m.mayInclude(t) {
				tasks = append(tasks, t)
			}
		}
	}
	return tasks
}

// wishElsewhere returns what a task asks for where it moves, in the resources of the world.
func (w *world) wishElsewhere(t *api.TaskInfo, takes []int64) *plan.Wish {
	look := w.lookOf(t)
	if w.elsewhere[look] == nil {
		w.elsewhere[look] = w.movers.wishOf(placeholderOf(t), takes)
	}
	return w.elsewhere[look]
}

// wishOf is what a placeholder asks for. Nodes that pods are leaving are no targets: a place must
// be free.
func (m *movers) wishOf(sample *api.TaskInfo, takes []int64) *plan.Wish {
	m.devices.JudgeMoves(true)
	defer m.devices.JudgeMoves(false)
	wish, serves := m.devices.Wish(sample)
	wish.Takes, wish.Excluded = takes, slices.Repeat([]bool{true}, len(m.NodeList))
	if serves && m.PrePredicateFn(sample) == nil {
		wish.Excluded = m.nodesThatRefuse(sample)
		for i, n := range m.NodeList {
			wish.Excluded[i] = wish.Excluded[i] || !n.Releasing.IsEmpty()
		}
	}
	return &wish
}

// queueHolds reports whether a queue has room for tasks while all victims are there: those that
// move free nothing of it.
func (p *planner) queueHolds(job *api.JobInfo, places []place) bool {
	stmt := framework.NewStatement(p.Session)
	defer p.undoTrial(stmt, holds.Job(job.UID))
	for _, at := range places {
		if !p.Allocatable(p.Queues[job.Queue], at.task) {
			return false
		}
		if stmt.Pipeline(at.task, at.node.Name, true) != nil {
			_ = stmt.UnPipeline(at.task)
		}
	}
	return true
}

// keepPlaces keeps the places of a plan for those that move. If other plugins refuse one, that node
// is excluded for pods like it, and false returned: nothing is kept.
func (p *planner) keepPlaces(w *world, found *plan.Plan) bool {
	for i := range found.Moves {
		t, n := w.tasks[found.Moves[i].Pod.Owner], p.NodeList[found.Moves[i].To.Node]
		if why := p.keepPlaceElsewhere(t, n, &found.Moves[i].To.Placement); why != "" {
			klog.V(3).InfoS("A place for a pod that moves is refused", "pod", nameOf(t), "node", n.Name, "why", why)
			found.Moves[i].Pod.Elsewhere.Excluded[found.Moves[i].To.Node] = true
			p.dropPlaces(w, found.Moves[:i])
			return false
		}
	}
	return true
}

// keepPlaceElsewhere keeps a place on a node for a task that moves. It returns why it cannot.
func (p *planner) keepPlaceElsewhere(t *api.TaskInfo, n *api.NodeInfo, placement *sharing.Placement) (why string) {
	again := &placeholder{task: placeholderOf(t), placement: placement}
	p.devices.JudgeMoves(true)
	defer p.devices.JudgeMoves(false)
	if !again.task.InitResreq.LessEqual(n.Idle, api.Zero) {
		return "the sums of the node have no room"
	}
	if err := p.PrePredicateFn(again.task); err != nil {
		return err.Error()
	}
	if err := p.PredicateForAllocateAction(again.task, n); err != nil {
		return err.Error()
	}
	if err := p.putPlaceholder(again, n, api.Allocated, false); err != nil {
		return err.Error()
	}
	p.room.placeholders[holds.Pod(t.Pod.UID)] = again
	return ""
}

// dropPlaces takes back what keepPlaces kept.
func (p *planner) dropPlaces(w *world, moves []plan.Move) {
	for i := range moves {
		of := holds.Pod(w.tasks[moves[i].Pod.Owner].Pod.UID)
		p.takePlaceholder(p.room.placeholders[of])
		delete(p.room.placeholders, of)
	}
}

// noteMoves has places kept for the successors of those that move, and for the rest of gangs that
// cannot go on without them: whoever ends one pod of those may end all.
func (p *planner) noteMoves(w *world, found *plan.Plan) {
	now := p.room.now()
	moving := map[*api.JobInfo][]holds.Slot{}
	for i := range found.Moves {
		t := w.tasks[found.Moves[i].Pod.Owner]
		moving[p.Jobs[t.Job]] = append(moving[p.Jobs[t.Job]], p.slotElsewhere(t, p.NodeList[found.Moves[i].To.Node].Name, now))
	}
	var jobs []api.JobID
	for job, slots := range moving {
		jobs = append(jobs, job.UID)
		if lacksMembers(job) { // victims do not count any more
			slots = append(slots, p.room.slotsOfRest(job)...)
		}
		p.room.book.Keep(holds.Hold{Job: holds.Job(job.UID), Priority: job.Priority, Since: now, Slots: slots})
	}
	p.room.noteMoves(jobs, p.moves.Rest)
}

// slotElsewhere is the slot of a task that moves to a node.
func (s *session) slotElsewhere(t *api.TaskInfo, node string, now int64) holds.Slot {
	from := victimOf(t, "", holds.Consolidate, now)
	return holds.Slot{Pod: from.Pod, Name: from.Name, Node: node, Shape: s.shapeOf(t), From: &from}
}

// slotsOfRest are slots for the tasks of a job that have a node and do not move.
func (r *Room) slotsOfRest(job *api.JobInfo) (slots []holds.Slot) {
	for _, status := range []api.TaskStatus{api.Running, api.Bound, api.Binding} {
		for _, t := range job.TaskStatusIndex[status] {
			slot := r.session.slotElsewhere(t, t.NodeName, r.now())
			slot.Stays = true
			slots = append(slots, slot)
			r.placeholders[slot.Pod] = &placeholder{task: placeholderOf(t)}
		}
	}
	return slots
}
