// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/sharing/plan"
)

const (
	// maxPlanned is for how many jobs a session looks for victims at most, on maxNodes in all: on
	// large clusters for fewer.
	maxPlanned = 64
	maxNodes   = 32_000
	// maxTrials is how many plans are tried for one job: other plugins may refuse what a plan says.
	maxTrials = 8
	// podsAsOne is how many more pods of a job take as long as one job.
	podsAsOne = 16
)

// planner is one run of the action preempt, reclaim or consolidate with our choice of victims.
type planner struct {
	*session
	room   *Room
	action string
	moves  MoveLimits
	// left is for how many more jobs it looks for victims.
	left int
	// helpless are kinds of pods, or queues with a priority, for which no evictions help in this
	// session, with what people are told of it.
	helpless map[string]string
	victims  map[api.JobID][]holds.Victim
	// complete says of jobs that were looked at whether they have all pods that they need to start.
	complete map[api.JobID]bool
	// world is that of the last pod, nil if it is out of date.
	world     *world
	standings standingsBy
}

// planEvictions plans for the jobs that starve, one after the other. It returns the victims of each
// job that is served, and whether there are jobs that Volcano has to choose for.
func (r *Room) planEvictions(action string, moves MoveLimits) (victims map[api.JobID][]holds.Victim, others bool) {
	p := &planner{
		session: r.session, room: r, action: action, moves: moves, helpless: map[string]string{},
		victims: map[api.JobID][]holds.Victim{}, complete: map[api.JobID]bool{}, standings: standingsBy{},
	}
	p.forgetChoices()
	before := p.lastTransactions()
	defer func() { p.dropFalsePromises(p.victims, before) }()
	p.left = min(maxPlanned, 1+maxNodes/(1+len(p.NodeList)))
	if p.isConsolidate() { // there is no hurry
		p.left = max(1, p.left/16)
	}
	p.hasPlanned = true
	jobs := r.fromResumed(action, p.starvingJobs())
	again := r.hopeless.beginSession(action, jobs)
	for _, job := range jobs {
		switch {
		case p.left <= 0 || !again.mayPlanFor(job.UID):
			if p.left <= 0 {
				r.resumeAt[action] = cmp.Or(r.resumeAt[action], job.UID)
			}
			p.noteAdvice(job, r.earlier[advised{job.UID, action}])
			p.judged[job.UID] = true // its turn comes in a later session
		case !r.MayEvictFor(job.UID) || p.isConsolidate() && !p.mayMoveFor(job):
		case !p.canPlanFor(job):
			others = true
		default:
			isHelped := p.makeRoomFor(job)
			again.noteOutcome(job.UID, isHelped, p.left > 0)
			if isHelped || p.isAdmitted(job) {
				p.judged[job.UID] = true
			} else {
				others = true
			}
		}
	}
	return p.victims, others
}

// canPlanFor reports whether plans are made for a job: no pod has claims of devices or a network
// topology.
func (s *session) canPlanFor(job *api.JobInfo) bool {
	if job.ContainsNetworkTopology() || len(job.MinSubJobs) > 0 {
		return false
	}
	for _, t := range s.waitingTasks(job) {
		if _, plannable := s.devices.Wish(t); !plannable || t.BestEffort || len(t.Pod.Spec.ResourceClaims) > 0 {
			return false
		}
	}
	return true
}

// isAdmitted reports whether the queue of a job admits each of its pods, but for devices. What else
// a queue lacks is not part of a plan.
func (s *session) isAdmitted(job *api.JobInfo) bool {
	return !slices.ContainsFunc(s.waitingTasks(job), func(t *api.TaskInfo) bool {
		return !s.Allocatable(s.Queues[job.Queue], t) && !lacksAnything(s.devices.Lacks([]*api.TaskInfo{t}))
	})
}

func lacksAnything(lacks []int64) bool {
	return slices.ContainsFunc(lacks, func(n int64) bool { return n > 0 })
}

// makeRoomFor makes room for the pods that a job needs to start: for several, all at once or none.
// For one of them preempt does so first by evicting pods of other jobs of its queue, then by less
// important ones of the job itself. It returns whether room is made.
func (p *planner) makeRoomFor(job *api.JobInfo) bool {
	tasks := p.inTaskOrder(job)
	if missing := missingTasks(job, tasks); len(missing) > 1 {
		return !slices.ContainsFunc(missing, func(t *api.TaskInfo) bool { return !mayPreempt(t) }) && p.makeRoom(job, missing, false)
	}
	for _, t := range tasks {
		one := []*api.TaskInfo{t}
		if mayPreempt(t) && (p.makeRoom(job, one, false) || p.action == holds.Preempt && p.makeRoom(job, one, true)) {
			return true
		}
	}
	return false
}

// makeRoom finds out who has to leave for pods that start together, and has the session see them as
// leaving and the pods in their place. It returns false if no evictions help.
func (p *planner) makeRoom(job *api.JobInfo, tasks []*api.TaskInfo, inJob bool) bool {
	level := fmt.Sprintf("%s %d", job.Queue, job.Priority)
	kind := level
	for _, t := range tasks {
		kind += " " + p.lookOf(t)
	}
	switch {
	case inJob:
		level, kind = string(tasks[0].UID), string(tasks[0].UID)
	case p.isReclaim():
		level = kind // who gives up anything depends on what is wanted
	}
	for _, about := range []string{level, kind} {
		if why, known := p.helpless[about]; known {
			p.noteAdvice(job, why)
			return false
		}
	}
	if p.left <= 0 {
		return false
	}
	w, why := p.worldFor(job, tasks, inJob)
	if w == nil || p.isReclaim() && !p.Preemptive(p.Queues[job.Queue], tasks[0]) {
		p.helpless[level] = why
		p.noteAdvice(job, why)
		return false
	}
	p.left -= 1 + len(tasks)/podsAsOne
	if !w.excludeNodes() {
		return false
	}
	for range maxTrials {
		found, no, err := findPlan(&w.cluster, w.pods)
		if err != nil {
			klog.ErrorS(err, "Cannot plan evictions for a job", "job", job.UID)
			break
		}
		if no != nil {
			klog.V(3).InfoS("No evictions help a job", "job", job.UID, "pods", len(tasks), "nodes", no.String(), "budgets", no.Budgets, "proven", no.Proven)
			why = no.Advice()
			break
		}
		places := w.placesOf(&found, tasks)
		if len(found.Evict) == 0 {
			if p.fitWithoutEvictions(job, places) {
				return false
			}
			w.excludeRoomy()
			continue
		}
		victims := w.tasksOf(found.Evict)
		if vetoed := p.vetoedBy(tasks[0], victims); len(vetoed) > 0 {
			p.dropVetoed(w, tasks[0], vetoed)
			continue
		}
		if p.isConsolidate() && !p.queueHolds(job, places) {
			break
		}
		if !p.keepPlaces(w, &found) {
			continue
		}
		refused := p.tryPlan(job, places, victims)
		if refused < 0 {
			p.noteEvictions(w, &found, victims, tasks)
			return true
		}
		p.dropPlaces(w, found.Moves)
		places[refused].wish.Excluded[places[refused].n] = true
	}
	p.helpless[kind] = why
	p.noteAdvice(job, why)
	return false
}

// noteAdvice notes why no evictions help a job, if there is anything to be told.
func (p *planner) noteAdvice(job *api.JobInfo, why string) {
	if why != "" {
		p.room.advice[advised{job.UID, p.action}] = why
	}
}

// findPlan is plan.FindTogether whose faults are errors: a scheduler that ends in each session
// places nobody.
func findPlan(w *plan.World, pods []*plan.Wish) (found plan.Plan, no *plan.No, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("plan for %d pods on %d nodes: %v\n%s", len(pods), len(w.Nodes), fault, debug.Stack())
		}
	}()
	found, no = plan.FindTogether(w, pods)
	return found, no, nil
}

// lookOf is equal for tasks that every node answers alike.
func (s *session) lookOf(t *api.TaskInfo) string {
	spec := &t.Pod.Spec
	look := fmt.Sprintf("%s%s %v %v", s.shapeOf(t), s.devices.Names(t), spec.NodeSelector, spec.Tolerations)
	hasPorts := slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return len(c.Ports) > 0 })
	if spec.Affinity != nil || len(spec.TopologySpreadConstraints)+len(spec.Volumes) > 0 || hasPorts {
		look += string(t.UID)
	}
	return look
}

// vetoedBy returns those of the victims that other plugins keep. Their say is asked for exactly
// those that would leave.
func (p *planner) vetoedBy(t *api.TaskInfo, victims []*api.TaskInfo) (vetoed []*api.TaskInfo) {
	p.planning = true
	defer func() { p.planning = false }()
	allowed := p.allowedBy(t, victims)
	for _, v := range victims {
		if !slices.ContainsFunc(allowed, func(a *api.TaskInfo) bool { return a.UID == v.UID }) {
			vetoed = append(vetoed, v)
		}
	}
	return vetoed
}

// dropVetoed takes pods that other plugins keep out of the world. The first time it asks for every
// pod by itself: most plugins keep pods whoever else leaves.
func (p *planner) dropVetoed(w *world, t *api.TaskInfo, vetoed []*api.TaskInfo) {
	kept := map[api.TaskID]bool{}
	for _, v := range vetoed {
		kept[v.UID] = true
	}
	if !w.asked {
		w.asked = true
		for _, v := range w.tasks {
			if len(p.vetoedBy(t, []*api.TaskInfo{v})) > 0 {
				kept[v.UID] = true
			}
		}
	}
	w.removeKept(kept)
	p.world = nil // the next pod may be refused others
}
