// SPDX-License-Identifier: Apache-2.0

package room

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/evictor"
	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/plugins/deviceshare/queues"
	"deviceshare/plugins/leader"
	"deviceshare/sharing"
	"deviceshare/sharing/events"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/quota"
)

// Devices is what a session says of devices.
type Devices interface {
	// Shape is equal for tasks that ask for the same devices and accept the same neighbours, "" for
	// those that ask for none. It is the same in all sessions.
	Shape(*api.TaskInfo) string
	// Names is what others select a task by as a neighbour, "" as long as nobody does.
	Names(*api.TaskInfo) string
	// IsPromised reports whether the session has promised a task the devices that it asks for.
	IsPromised(*api.TaskInfo) bool
	// JudgeFuture has predicates judge nodes as they will be when the pods that are leaving are
	// gone.
	JudgeFuture(bool)
	// Wish returns what a task asks of devices, and false if no plan can be made for it: it cannot
	// be served, or waits for pods of its queue that are leaving already.
	Wish(*api.TaskInfo) (plan.Wish, bool)
	// AccountOf returns whose limits the tasks of a job count for.
	AccountOf([]*api.TaskInfo) quota.Account
	// Lacks returns by how much the tasks of a job together exceed each limit of their account.
	Lacks([]*api.TaskInfo) []int64
	// Frees returns how much of each limit of an account the end of a task frees.
	Frees(*api.TaskInfo, quota.Account) []int64
	// Standings returns where queues stand, for tasks that ask for these resources.
	Standings(ssn *framework.Session, names []string) *queues.Standings
	// Serves reports whether a node may serve a task whoever leaves, as far as devices say.
	Serves(*api.TaskInfo, *api.NodeInfo) bool
	// Future returns the devices of a node as they will be when the pods that are leaving are gone,
	// nil if it has none.
	Future(node string) []sharing.View
	// JudgeMoves has JudgeFuture, Wish and predicates go by devices alone: whoever moves takes no
	// more of the limits of its queue than it has.
	JudgeMoves(bool)
	// Reserve keeps devices of a node for a task in this session as they will be when the pods that
	// are leaving are gone: those of a placement, or any if it is nil. Counts says that its queue
	// is charged with them. Return takes them back.
	Reserve(t *api.TaskInfo, node string, p *sharing.Placement, counts bool) error
	Return(*api.TaskInfo)
	// IsComplete reports whether all pods of the API server are in the snapshot.
	IsComplete() bool
}

// Evictions carries out what Room decides. It must not wait for the API server.
type Evictions interface {
	// Evict orders that a pod leave. A second order for it changes nothing.
	Evict(kubernetes.Interface, evictor.Eviction)
	// ClearNomination orders that a waiting pod stop naming the node where it was to start.
	ClearNomination(client kubernetes.Interface, pod types.NamespacedName, uid types.UID)
	// Len returns how many orders have no answer yet. Safe for concurrent use.
	Len() int
	// Close drops orders without an answer.
	Close()
}

// Room has the holds of a process and carries them into its sessions.
type Room struct {
	book    *holds.Book
	evictor Evictions
	// now is in seconds of a clock that never goes back, wall in those of the time of day.
	now, wall func() int64
	// rebuilt says that the holds of an earlier process are known.
	rebuilt bool
	wanted  atomic.Pointer[map[holds.Pod]bool]
	kept    atomic.Int64
	ends    [holds.Outcomes]atomic.Int64
	session *session // the open one, nil if none is
	// resumeAt is the job that an action had no time for in the last session.
	resumeAt map[string]api.JobID
	// hopeless are the jobs that no evictions helped when that was looked at last.
	hopeless *hopeless
	// advice is why no evictions help a job, for those of which something is to be told;
	// earlier is that of the last session.
	advice, earlier map[advised]string
	// placeholders keep places for pods that move, by the pod. movedAt is when pods of a job did.
	placeholders map[holds.Pod]*placeholder
	movedAt      map[api.JobID]movedTimes
	// began is the time of day when the process did: who has moved before is not known.
	began int64
}

// advised is a job that an action has no victims for.
type advised struct {
	job    api.JobID
	action string
}

// New returns a Room without holds. Nil has the API server evict pods.
func New(by Evictions, lead leader.Leadership, report evictor.Reporter, now, wall func() int64) *Room {
	r := &Room{
		book: holds.NewBook(), now: now, wall: wall, began: wall(), resumeAt: map[string]api.JobID{}, hopeless: newHopeless(),
		placeholders: map[holds.Pod]*placeholder{}, movedAt: map[api.JobID]movedTimes{},
	}
	r.wanted.Store(&map[holds.Pod]bool{})
	if r.evictor = by; by == nil {
		r.evictor = evictor.New(lead, r, report)
	}
	return r
}

// Close ends the workers that evict.
func (r *Room) Close() { r.evictor.Close() }

// IsWanted reports whether a pod has to leave. Safe for concurrent use.
func (r *Room) IsWanted(pod types.UID) bool { return (*r.wanted.Load())[holds.Pod(pod)] }

// Holds returns how many holds there are. Safe for concurrent use.
func (r *Room) Holds() int { return int(r.kept.Load()) }

// Unanswered returns how many evictions have no answer yet. Safe for concurrent use.
func (r *Room) Unanswered() int { return r.evictor.Len() }

// Ends returns how many holds ended in each outcome. Safe for concurrent use.
func (r *Room) Ends() (ends [holds.Outcomes]int) {
	for o := range ends {
		ends[o] = int(r.ends[o].Load())
	}
	return ends
}

// OpenSession takes part in a session.
func (r *Room) OpenSession(ssn *framework.Session, devices Devices) {
	r.session = &session{
		Session: ssn, devices: devices, victimOf: map[api.TaskID]api.JobID{}, heldBySum: map[api.JobID]bool{},
		judged: map[api.JobID]bool{}, namespaceLabels: map[string]map[string]string{},
	}
	r.session.followActions()
	r.earlier, r.advice = r.advice, map[advised]string{}
}

// CloseSession ends the part in a session.
func (r *Room) CloseSession() { r.session = nil }

// BeginSession brings the holds up to date and applies them, once in a session.
func (r *Room) BeginSession() {
	s := r.session
	if s == nil || s.begun || !r.rebuilt && !s.devices.IsComplete() {
		return
	}
	s.begun = true
	if !r.rebuilt {
		r.rebuildHolds()
		r.rebuilt = true
	}
	if r.book.Len() == 0 && !r.book.HasFailures() {
		return
	}
	for _, end := range r.book.Refresh(s, r.now()) {
		r.noteEnd(&end)
	}
	stmt := framework.NewStatement(s.Session)
	for _, h := range r.book.InOrder() {
		s.evictVictims(stmt, h)
	}
	r.keepForMoved()
	r.takeOverPlaces()
	for _, h := range r.book.InOrder() {
		if h.IsMove() {
			continue // their places are kept
		}
		if why := s.applyHold(h); why != "" {
			r.noteEnd(&holds.End{Hold: *h, Outcome: holds.Failed, Why: why})
			r.book.Fail(h.Job, r.now())
		}
	}
	for _, h := range r.book.InOrder() {
		if h.IsMove() {
			r.applyMove(h)
		}
	}
	r.publishVictims()
}

// MayEvictFor reports whether pods may be evicted for a job now.
func (r *Room) MayEvictFor(j api.JobID) bool {
	if r.session == nil || !r.session.begun {
		return true // the session goes on without holds: a simulation, or an action of somebody else
	}
	_, may := r.book.MayEvict(holds.Job(j), r.now())
	return may && !r.session.judged[j]
}

// IsPlanning reports whether a plan is shown to other plugins: it has been decided by devices.
func (r *Room) IsPlanning() bool { return r.session != nil && r.session.planning }

// noteEnd counts a hold that has ended. Pods that wait must not name a node on which nothing is
// kept.
func (r *Room) noteEnd(e *holds.End) {
	r.ends[e.Outcome].Add(1)
	if e.Outcome == holds.Failed {
		klog.InfoS("Room that was being made for a job cannot be used", "job", e.Hold.Job, "why", e.Why)
	}
	if e.Outcome != holds.Placed {
		r.clearNominations(&e.Hold)
	}
}

// clearNominations takes the nominated node from the pods of a hold that still wait.
func (r *Room) clearNominations(h *holds.Hold) {
	for i := range h.Slots {
		if t := r.session.findMember(h.Job, h.Slots[i].Pod); t != nil && t.Pod.Status.NominatedNodeName != "" {
			r.evictor.ClearNomination(r.session.KubeClient(), types.NamespacedName{Namespace: t.Namespace, Name: t.Name}, t.Pod.UID)
		}
	}
}

// publishVictims tells the evictor who has to leave, and has it ask those that were not asked yet.
func (r *Room) publishVictims() {
	wanted := r.book.Wanted()
	r.wanted.Store(&wanted)
	r.kept.Store(int64(r.book.Len()))
	for _, h := range r.book.InOrder() {
		for i := range h.Victims {
			v := &h.Victims[i]
			t := r.session.findVictim(v)
			if t == nil || t.Pod.DeletionTimestamp != nil {
				continue
			}
			r.evictor.Evict(r.session.KubeClient(), evictor.Eviction{
				Pod: types.NamespacedName{Namespace: t.Namespace, Name: t.Name}, UID: t.Pod.UID,
				Why: r.reasonFor(h, v, t).String(), Event: eventOf(v.Action),
			})
		}
	}
}

// reasonFor returns why a victim has to leave.
func (r *Room) reasonFor(h *holds.Hold, v *holds.Victim, t *api.TaskInfo) holds.Reason {
	reason := holds.Reason{
		Node: v.RoomOn(), Priority: h.Priority, Own: r.session.priorityOf(t.Job), Reclaimed: v.Action == holds.Reclaim,
	}
	if v.Action == holds.Consolidate {
		reason.Kept = r.book.PlaceOf(v.Pod)
	}
	for i := range h.Slots {
		if reason.For == "" || h.Slots[i].Node == v.RoomOn() {
			reason.For = h.Slots[i].Name
		}
	}
	return reason
}

// eventOf returns the event that a victim of an action is given.
func eventOf(action string) string {
	switch action {
	case holds.Reclaim:
		return events.Reclaimed
	case holds.Consolidate:
		return events.Moved
	}
	return events.Preempted
}

// Text is what a task with a place is told while it waits, "" for one without.
func (r *Room) Text(t *api.TaskInfo) string {
	h := r.book.Of(holds.Job(t.Job))
	if h == nil || t.Pod.Status.NominatedNodeName == "" {
		return "" // Volcano writes the nominated node with its own text
	}
	for i := range h.Slots {
		if s := &h.Slots[i]; s.Pod == holds.Pod(t.Pod.UID) {
			return waitText(h, s)
		}
	}
	return ""
}

// Advice is what the pods of a job are told of why no evictions help them, "" if nothing is.
func (r *Room) Advice(job api.JobID) string {
	if r.session == nil || !r.session.hasPlanned {
		return ""
	}
	var texts []string
	for _, action := range []string{holds.Reclaim, holds.Preempt, holds.Consolidate} {
		if text := r.advice[advised{job, action}]; text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ". ")
}

func waitText(h *holds.Hold, s *holds.Slot) string {
	victims := make([]string, len(h.Victims))
	for i := range h.Victims {
		victims[i] = h.Victims[i].Name
	}
	names := plan.ListNames(victims)
	switch {
	case s.From != nil:
		return fmt.Sprintf("starts on node %s, where a place is kept for it, because the pod before it moved", s.Node)
	case names == "":
		return fmt.Sprintf("starts on node %s as soon as it can use the room that was made for it", s.Node)
	}
	return fmt.Sprintf("starts on node %s when these pods have left, which were told to make room: %s", s.Node, names)
}
