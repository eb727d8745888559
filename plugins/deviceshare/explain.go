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
	found []found
	// waiting counts the pods that wait.
	waiting tally
	// shortJob is the job whose shortage of quota is known, short its text.
	shortJob api.JobID
	short    string
}

// found is why one task waits.
type found struct {
	task *api.TaskInfo
	text string
}

// heldBy is what the reason of a job that was not let in depends on.
type heldBy struct {
	voter string
	queue api.QueueID
	wants string
}

// explain tells each pod that waits for devices why, with one text for its condition and its
// event, which Volcano writes when the session closes. It runs when the last action has ended, and
// takes no decision: what it says is what the predicate and Volcano's plugins have decided.
//
// A session looks at every waiting pod. It makes a text for each set of pods that wait for the
// same, asks the domain about at most lookLimit nodes, and changes what pods were told as package
// waiting allows.
func (p *Plugin) explain(ssn *framework.Session) {
	if p.overlay == nil || p.explained {
		return
	}
	p.explained = true
	e := &explanation{
		Plugin: p, ssn: ssn, sums: newSums(ssn), texts: map[string]*api.FitErrors{},
		advice: map[string]string{}, held: map[heldBy]string{}, waiting: tally{},
	}
	p.store.looks.begin(p.store.seconds())
	p.store.told.Begin(p.store.seconds())
	for _, job := range ssn.Jobs {
		if job.PodGroup != nil && len(job.TaskStatusIndex[api.Pending]) > 0 {
			e.explainJob(job)
		}
		e.countLeaving(job)
	}
	p.store.waiting.Store(&e.waiting)
	p.store.told.End()
	p.store.looks.end()
}

// explainJob tells the waiting pods of one job. The job gets the text of its first pod by name:
// Volcano would take any, another one in each session, and write it into the group.
func (e *explanation) explainJob(job *api.JobInfo) {
	e.found = e.found[:0]
	for _, t := range job.TaskStatusIndex[api.Pending] {
		a := e.remember(t)
		if a == nil {
			continue
		}
		cause, text := e.cause(job, t, a)
		e.waiting.add(job.Queue, cause, memoryOf(&a.request, e.store.largest))
		if text != "" {
			e.found = append(e.found, found{t, text})
		}
	}
	// What nodes said to one pod may be the reason of another: it is replaced at the end.
	var first *api.TaskInfo
	for _, f := range e.found {
		text := e.store.told.Tell(waiting.Pod(f.task.Pod.UID), f.text)
		if e.texts[text] == nil {
			e.texts[text] = asFitErrors(text)
		}
		show(job, f.task, e.texts[text])
		if len(job.Tasks) > 1 && (first == nil || f.task.Name < first.Name) {
			first, job.JobFitErrors = f.task, "pod "+f.task.Name+": "+text
		}
	}
}

// cause is why a task waits, the cause before its effects, with a text for people: "" if they are
// told by others, or nobody knows.
func (e *explanation) cause(job *api.JobInfo, t *api.TaskInfo, a *ask) (waiting.Cause, string) {
	switch {
	case t.SchGated:
		return waiting.Gate, ""
	case !waits(t):
		return waiting.Gang, "" // it would have a node, if the gang could start
	case e.off != nil:
		return waiting.Settings, e.everywhere(e.off)
	case a.mistakes != nil:
		return waiting.Request, e.everywhere(a.mistakes)
	}
	if text := e.overQuota(job, t); text != "" {
		return waiting.Quota, sentences(text)
	}
	if job.IsPending() {
		devices := e.devices(t, a)
		return waiting.Enqueue, sentences(e.heldBack(job), devices, e.helps(devices))
	}
	if text := e.gangIncomplete(job); text != "" {
		return waiting.Gang, sentences(text)
	}
	if text, devices := e.nodesSay(job, t, a); text != "" {
		return waiting.Nodes, sentences(text, devices, e.gangFits(job), e.helps(text+devices))
	}
	if text := e.queueRefuses(job, t); text != "" {
		devices := e.devices(t, a)
		return waiting.Queue, sentences(text, devices, e.helps(devices))
	}
	if text := e.othersFirst(job); text != "" {
		return waiting.Gang, sentences(text)
	}
	return waiting.Turn, ""
}

// everywhere is the text of what no node can mend, in Volcano's form.
func (e *explanation) everywhere(why error) string {
	n := len(e.infos)
	return fmt.Sprintf("0/%d nodes are unavailable: %d %s.", n, n, why)
}

// sentences joins those that there are, "" if there are none.
func sentences(parts ...string) string {
	var text strings.Builder
	text.Grow(512)
	for _, part := range parts {
		if part == "" {
			continue
		}
		if text.Len() > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(strings.TrimSuffix(part, "."))
		text.WriteByte('.')
	}
	return text.String()
}

// gangIncomplete is why plugin gang does not look at a job yet: it has too few pods.
func (e *explanation) gangIncomplete(job *api.JobInfo) string {
	v := e.ssn.JobValid(job)
	if v == nil || v.Pass {
		return ""
	}
	if n := job.ValidTaskNum(); n < job.MinAvailable {
		return fmt.Sprintf("the gang has %d of the %d pods it needs to start (minAvailable): it waits until the others are made", n, job.MinAvailable)
	}
	return "the gang is not complete: " + v.Message
}

// nodesSay is what the nodes say, as Volcano counts it, "" if none was asked. Sums that are short
// hide what single devices say, so that comes with it.
func (e *explanation) nodesSay(job *api.JobInfo, t *api.TaskInfo, a *ask) (text, devices string) {
	f := e.refusedBy(job, t)
	if f == nil {
		return "", ""
	}
	text = f.Error()
	for _, name := range []string{e.settings.Names.Number, e.settings.Names.Memory, e.settings.Names.Cores} {
		if name != "" && strings.Contains(text, "Insufficient "+name) {
			return text, e.devices(t, a)
		}
	}
	return text, ""
}

// refusedBy returns what the nodes said to a task, or to another one of its kind that Volcano
// asked for in its place.
func (e *explanation) refusedBy(job *api.JobInfo, t *api.TaskInfo) *api.FitErrors {
	f := job.NodesFitErrors[t.UID]
	if f == nil || !strings.HasSuffix(f.Error(), triedBefore) {
		return f
	}
	for id, other := range job.TaskStatusIndex[api.Pending] {
		if asked := job.NodesFitErrors[id]; other.TaskRole == t.TaskRole && asked != nil && !strings.HasSuffix(asked.Error(), triedBefore) {
			return asked
		}
	}
	return nil
}

// gangFits says how many pods of a gang would fit, if any would.
func (e *explanation) gangFits(job *api.JobInfo) string {
	if fit := fitting(job); job.MinAvailable > 1 && fit > 0 {
		return fmt.Sprintf("Of the %d pods the gang needs to start, %d fit", job.MinAvailable, fit)
	}
	return ""
}

// othersFirst is why a task was not looked at: the gang had failed before, or its turn has not
// come.
func (e *explanation) othersFirst(job *api.JobInfo) string {
	if job.MinAvailable < 2 {
		return ""
	}
	return fmt.Sprintf("the gang needs %d pods to start, %d fit: see the events of its other pods", job.MinAvailable, fitting(job))
}

// fitting is how many pods of a job have a node, or would have one if the gang could start.
func fitting(job *api.JobInfo) int {
	n := int(job.ReadyTaskNum() + job.WaitingTaskNum())
	for _, t := range job.TaskStatusIndex[api.Pending] {
		if !waits(t) && !t.SchGated {
			n++
		}
	}
	return n
}
