// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"strings"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/waiting"
)

// explanation is what one session finds out about the pods that wait.
type explanation struct {
	*Plugin
	ssn  *framework.Session
	sums *sums
	// texts are the values that Volcano shows, by text: pods that wait for the same share one.
	texts map[string]*api.FitErrors
	// advice is what helps with what nodes say, by their text.
	advice map[string]string
	// held are the reasons of jobs that were not let in, by what they depend on.
	held map[heldBy]string
	// found is scratch space of explainJob.
	found []taskCause
	// waiting counts the pods that wait.
	waiting waitCounts
	// joined are texts of several sentences, by their sentences.
	joined map[[4]string]string
	// facts are those of the job that is being explained.
	facts jobFacts
}

// taskCause is why one task waits.
type taskCause struct {
	task  *api.TaskInfo
	cause waiting.Cause
	text  string
}

// heldBy is what the reason of a job that was not let in depends on.
type heldBy struct {
	voter string
	queue api.QueueID
	wants string
}

// explainWaiting tells each pod that waits for devices why, with one text for its condition and its
// event, which Volcano writes when the session closes. It runs when the last action has ended, and
// takes no decision: what it says is what the predicate and Volcano's plugins have decided.
//
// A session looks at every waiting pod, and once at the job of each: the work grows with the number
// of pods, however they are divided among jobs. It makes a text for each set of pods that wait for
// the same, asks the domain about at most lookLimit nodes, and changes what pods were told as
// package waiting allows.
func (p *Plugin) explainWaiting(ssn *framework.Session) {
	if p.overlay == nil || p.explained {
		return
	}
	p.explained = true
	p.limits.DropClaims()
	e := &explanation{
		Plugin: p, ssn: ssn, sums: newSums(ssn), texts: map[string]*api.FitErrors{}, advice: map[string]string{},
		held: map[heldBy]string{}, waiting: waitCounts{}, joined: map[[4]string]string{},
	}
	p.store.looks.beginSession(p.store.uptimeSeconds())
	p.store.told.Begin(p.store.uptimeSeconds())
	for _, job := range ssn.Jobs {
		if job.PodGroup != nil && len(job.TaskStatusIndex[api.Pending]) > 0 {
			e.explainJob(job)
		}
		e.countLeaving(job)
	}
	p.store.waiting.Store(&e.waiting)
	p.store.told.End()
	p.store.looks.endSession()
}

// explainJob tells the waiting pods of one job. The job gets the text of its first pod by name:
// Volcano would take any, another one in each session, and write it into the group.
func (e *explanation) explainJob(job *api.JobInfo) {
	e.found, e.facts = e.found[:0], jobFacts{}
	for _, t := range job.TaskStatusIndex[api.Pending] {
		a := e.rememberAsk(t)
		if a == nil {
			continue
		}
		cause, text := e.findCause(job, t, a)
		e.waiting.countPod(job.Queue, cause, memoryOf(&a.request, e.store.largest))
		if text != "" {
			e.found = append(e.found, taskCause{t, cause, text})
		}
	}
	// What nodes said to one pod may be the reason of another: it is replaced at the end.
	var first *api.TaskInfo
	said := ""
	for _, f := range e.found {
		text := e.store.told.Tell(waiting.Pod(f.task.Pod.UID), f.cause, f.text)
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
func (e *explanation) findCause(job *api.JobInfo, t *api.TaskInfo, a *ask) (waiting.Cause, string) {
	switch {
	case t.SchGated:
		return waiting.Gate, ""
	case !isStillPending(t):
		return waiting.Gang, "" // it would have a node, if the gang could start
	case e.off != nil:
		return waiting.Settings, e.unavailableText(e.off)
	case a.mistakes != nil:
		return waiting.Request, e.unavailableText(a.mistakes)
	}
	if text := e.overQuota(job, t, a); text != "" {
		return waiting.Quota, e.joinSentences(text)
	}
	if job.IsPending() {
		devices := e.summarizeDevices(t, a)
		return waiting.Enqueue, e.joinSentences(e.heldBack(job), devices, e.adviceFor(devices))
	}
	if text := e.gangIncomplete(job); text != "" {
		return waiting.Gang, e.joinSentences(text)
	}
	if text, devices := e.nodesSay(job, t, a); text != "" {
		return waiting.Nodes, e.joinSentences(text, devices, e.gangFits(job), e.adviceFor(text+devices))
	}
	if text := e.queueRefuses(job, t); text != "" {
		devices := e.summarizeDevices(t, a)
		return waiting.Queue, e.joinSentences(text, devices, e.adviceFor(devices))
	}
	if text := e.othersFirst(job); text != "" {
		return waiting.Gang, e.joinSentences(text)
	}
	return waiting.Turn, ""
}

// unavailableText is the text of what no node can mend, in Volcano's form.
func (e *explanation) unavailableText(why error) string {
	n := len(e.infos)
	return fmt.Sprintf("0/%d nodes are unavailable: %d %s.", n, n, why)
}

// joinSentences joins up to four sentences, those that there are; "" if there are none.
func (e *explanation) joinSentences(parts ...string) string {
	var key [4]string
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
