// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"strings"
	"sync/atomic"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/queues"
	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/sharing"
)

// Ask is what a task asks for, as far as its reasons depend on it.
type Ask struct {
	Request *sharing.PodRequest
	// Mistakes is why no node can ever serve the task, nil if one may.
	Mistakes error
	// IsUncertain says that it may ask for devices under a name that is not known yet.
	IsUncertain bool
	// Kind is the same for tasks that every limit of a queue answers alike, nil if that depends on
	// the task.
	Kind *nodes.Kind
	// Shape is the same for tasks that every node answers alike.
	Shape string
}

// Scheduler is what the reasons are read from. The session goroutine calls it.
type Scheduler interface {
	// Ask returns what a task asks for; false if it asks for no devices.
	Ask(*api.TaskInfo) (Ask, bool)
	// Answer returns what a node says to a task, "" if its devices have room. Limits of queues are
	// left out.
	Answer(*api.TaskInfo, *nodes.Node, *api.NodeInfo) string
	// RoomFor returns what a task is told for which room is being made, "" if none is.
	RoomFor(*api.TaskInfo) string
	// NoRoomFor returns why no evictions make room for a job, "" if there is nothing to be told.
	NoRoomFor(*api.JobInfo) string
	// NewNodeFor returns what a task is told for which a new node is asked for, "" if none is.
	NewNodeFor(*api.TaskInfo) string
}

// Session is what is known when the last action of a session has ended.
type Session struct {
	*framework.Session
	Scheduler Scheduler
	// Off is why no pod gets devices in this session, nil if pods do.
	Off      error
	Devices  map[string]*nodes.Node
	Settings *nodes.Settings
	// Largest is the most memory that a device of the cluster has.
	Largest sharing.Bytes
	Limits  *queues.Limits
	Witness *Witness
	// Now is in seconds of a clock that is never set.
	Now int64
	// Told is called for each task that is told why it waits; nil if nobody asks.
	Told func(*api.JobInfo, *api.TaskInfo, news.Cause)
}

// Memory is what outlives sessions. The session goroutine owns it, but for Counts.
type Memory struct {
	told    *news.Memory
	answers deviceAnswers
	// clashes name, for pods that are kept apart from others, one of those.
	clashes deviceAnswers
	counts  atomic.Pointer[Counts]
}

// NewMemory returns a memory of pods that were told nothing.
func NewMemory(l news.Limits) *Memory { return &Memory{told: news.NewMemory(l)} }

// Len is how many pods are remembered.
func (m *Memory) Len() int { return m.told.Len() }

// Counts returns who waits since the last session, nil if that is not known. Safe for concurrent
// use.
func (m *Memory) Counts() *Counts { return m.counts.Load() }

// Forget forgets who waits: a session went by without the plugin.
func (m *Memory) Forget() { m.counts.Store(nil) }

// explanation is what one session finds out about the pods that wait.
type explanation struct {
	Session
	memory *Memory
	sums   *sums
	// texts are the values that Volcano shows, by text: pods that wait for the same share one.
	texts map[string]*api.FitErrors
	// advice is what helps with what nodes say, by their text.
	advice map[string]string
	// held are the reasons of jobs that were not let in, by what they depend on.
	held map[heldBy]string
	// found is scratch space of explainJob.
	found []taskCause
	// waiting counts the pods that wait.
	waiting Counts
	// joined are texts of several sentences, by their sentences.
	joined map[[mostSentences]string]string
	// facts are those of the job that is being explained.
	facts jobFacts
}

// taskCause is why one task waits.
type taskCause struct {
	task  *api.TaskInfo
	cause news.Cause
	text  string
}

// heldBy is what the reason of a job that was not let in depends on.
type heldBy struct {
	voter string
	queue api.QueueID
	wants string
}

// Explain tells each pod that waits for devices why, with one text for its condition and its event,
// which Volcano writes when the session closes. It runs when the last action has ended, and takes
// no decision: what it says is what the predicate and Volcano's plugins have decided.
//
// A session looks at every waiting pod, and once at the job of each: the work grows with the number
// of pods, however they are divided among jobs. It makes a text for each set of pods that wait for
// the same, asks the domain about at most maxNodesAsked nodes, and changes what pods were told as
// package news allows.
func (m *Memory) Explain(s Session) {
	e := &explanation{
		Session: s, memory: m, sums: newSums(s.Session), texts: map[string]*api.FitErrors{}, advice: map[string]string{},
		held: map[heldBy]string{}, waiting: Counts{}, joined: map[[mostSentences]string]string{},
	}
	m.answers.beginSession(s.Now)
	m.clashes.beginSession(s.Now)
	m.told.Begin(s.Now)
	for _, job := range s.Jobs {
		if job.PodGroup != nil && len(job.TaskStatusIndex[api.Pending]) > 0 {
			e.explainJob(job)
		}
		e.explainLeaving(job)
	}
	m.counts.Store(&e.waiting)
	m.told.End()
	m.answers.endSession()
	m.clashes.endSession()
}

// explainJob tells the waiting pods of one job. The job gets the text of its first pod by name:
// Volcano would take any, another one in each session, and write it into the group.
func (e *explanation) explainJob(job *api.JobInfo) {
	e.found, e.facts = e.found[:0], jobFacts{}
	for _, t := range job.TaskStatusIndex[api.Pending] {
		a, asks := e.Scheduler.Ask(t)
		if !asks {
			continue
		}
		cause, text := e.findCause(job, t, &a)
		e.waiting.countPod(job.Queue, cause, MemoryOf(a.Request, e.Largest))
		if text != "" {
			e.found = append(e.found, taskCause{t, cause, text})
		}
	}
	// What nodes said to one pod may be the reason of another: it is replaced at the end.
	var first *api.TaskInfo
	said := ""
	for _, f := range e.found {
		text := e.memory.told.Tell(news.Pod(f.task.Pod.UID), f.cause, f.text)
		if e.Told != nil {
			e.Told(job, f.task, f.cause)
		}
		shown := e.texts[text]
		if shown == nil {
			shown = asFitErrors(text)
			e.texts[text] = shown
		}
		setFitErrors(job, f.task, shown)
		if first == nil || f.task.Name < first.Name {
			first, said = f.task, text
		}
	}
	if first != nil && len(job.Tasks) > 1 {
		showJob(job, first.Name, said)
	}
}

// findCause is why a task waits, the cause before its effects, with a text for people: "" if they
// are told by others, or nobody knows.
func (e *explanation) findCause(job *api.JobInfo, t *api.TaskInfo, a *Ask) (news.Cause, string) {
	switch {
	case t.SchGated:
		return news.Gate, ""
	case !isStillPending(t):
		return news.Gang, "" // it would have a node, if the gang could start
	case e.Off != nil:
		return news.Settings, e.unavailableText(e.Off)
	case a.Mistakes != nil:
		return news.Request, e.unavailableText(a.Mistakes)
	}
	if text := e.overQuota(job, t, a); text != "" {
		return news.Quota, e.joinSentences(text)
	}
	if job.IsPending() {
		devices := e.summarizeDevices(t, a)
		return news.Enqueue, e.joinSentences(e.heldBack(job), devices, e.Scheduler.NewNodeFor(t), e.adviceFor(a, devices))
	}
	if text := e.gangIncomplete(job); text != "" {
		return news.Gang, e.joinSentences(text)
	}
	if text, devices := e.nodesSay(job, t, a); text != "" {
		return news.Nodes, e.joinSentences(text, devices, e.gangFits(job), e.Scheduler.NoRoomFor(job), e.Scheduler.NewNodeFor(t), e.adviceFor(a, text+devices))
	}
	if text := e.queueRefuses(job, t); text != "" {
		devices := e.summarizeDevices(t, a)
		return news.Queue, e.joinSentences(text, devices, e.adviceFor(a, devices))
	}
	if text := e.othersFirst(job); text != "" {
		return news.Gang, e.joinSentences(text)
	}
	return news.Turn, ""
}

// unavailableText is the text of what no node can mend, in Volcano's form.
func (e *explanation) unavailableText(why error) string {
	n := len(e.Nodes)
	return fmt.Sprintf("0/%d nodes are unavailable: %d %s.", n, n, why)
}

// mostSentences is of how many sentences a text is at most.
const mostSentences = 6

// joinSentences joins sentences, those that there are; "" if there are none.
func (e *explanation) joinSentences(parts ...string) string {
	var key [mostSentences]string
	copy(key[:], parts)
	if text, known := e.joined[key]; known {
		return text
	}
	var text strings.Builder
	for _, part := range key {
		if part == "" {
			continue
		}
		if text.Len() > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(strings.TrimSuffix(part, "."))
		text.WriteByte('.')
	}
	e.joined[key] = text.String()
	return e.joined[key]
}
