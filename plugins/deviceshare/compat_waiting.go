// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	pluginutil "volcano.sh/volcano/pkg/scheduler/plugins/util"
)

// What package waiting needs of Volcano, and what may be different in other versions of it.

// question is one that Volcano puts to the plugins of a session in their order, until one of them
// says no.
type question int

const (
	mayEnqueue  question = iota // may the job be let in?
	mayAllocate                 // may the queue give the task anything?
	isOverused                  // has the queue more than its share?
	questions
)

// votingPlugins are the plugins that may say no to a question. One that is not listed is not named
// when it does.
func votingPlugins(q question) []string {
	switch q {
	case mayEnqueue:
		return []string{"resourcequota", "extender", "overcommit", "proportion", "capacity", PluginName}
	case mayAllocate:
		return []string{"proportion", "capacity", PluginName}
	default:
		return []string{"proportion", "capacity", "extender"}
	}
}

// isAsked reports whether the configuration has Volcano ask a plugin the question.
func isAsked(o *conf.PluginOption, q question) bool {
	enabled := [questions]*bool{mayEnqueue: o.EnabledJobEnqueued, mayAllocate: o.EnabledAllocatable, isOverused: o.EnabledOverused}[q]
	return enabled != nil && *enabled && slices.Contains(votingPlugins(q), o.Name)
}

// witness finds out which plugin said no. Volcano tells nobody, and asking a plugin again would
// count the job twice. So before and after each plugin that may say no there stands one that has
// no opinion and notes that it was asked: the plugin behind the last one of them has said no.
type witness struct {
	// refused says which plugin said no to which job, task or queue.
	refused [questions]map[string]string
	// subject and voter are the last one asked about, and the plugin that was asked next.
	subject, voter [questions]string
}

// standBy puts the witness into the tiers of a session, of which it makes a copy: they are the
// scheduler's configuration.
func (w *witness) standBy(ssn *framework.Session) {
	tiers := make([]conf.Tier, len(ssn.Tiers))
	for i := range ssn.Tiers {
		for j := range ssn.Tiers[i].Plugins {
			o := ssn.Tiers[i].Plugins[j]
			before, after := w.addObservers(ssn, &o)
			tiers[i].Plugins = append(append(append(tiers[i].Plugins, before...), o), after...)
		}
	}
	ssn.Tiers = tiers
}

// addObservers returns what stands before and after a plugin.
func (w *witness) addObservers(ssn *framework.Session, o *conf.PluginOption) (before, after []conf.PluginOption) {
	yes := true
	first := conf.PluginOption{Name: PluginName + "/before/" + o.Name}
	last := conf.PluginOption{Name: PluginName + "/after/" + o.Name}
	if isAsked(o, mayEnqueue) {
		first.EnabledJobEnqueued, last.EnabledJobEnqueued = &yes, &yes
		ssn.AddJobEnqueueableFn(first.Name, func(job any) int { return w.noteEnqueue(job, o.Name) })
		ssn.AddJobEnqueueableFn(last.Name, func(job any) int { return w.noteEnqueue(job, "") })
	}
	if isAsked(o, mayAllocate) {
		first.EnabledAllocatable, last.EnabledAllocatable = &yes, &yes
		ssn.AddAllocatableFn(first.Name, func(_ *api.QueueInfo, t *api.TaskInfo) bool {
			w.noteAsked(mayAllocate, string(t.UID), o.Name)
			return true
		})
		ssn.AddAllocatableFn(last.Name, func(_ *api.QueueInfo, t *api.TaskInfo) bool { w.noteAsked(mayAllocate, string(t.UID), ""); return true })
	}
	if isAsked(o, isOverused) {
		first.EnabledOverused, last.EnabledOverused = &yes, &yes
		ssn.AddOverusedFn(first.Name, func(queue any) bool { return w.noteOverused(queue, o.Name) })
		ssn.AddOverusedFn(last.Name, func(queue any) bool { return w.noteOverused(queue, "") })
	}
	if first.EnabledJobEnqueued == nil && first.EnabledAllocatable == nil && first.EnabledOverused == nil {
		return nil, nil
	}
	return []conf.PluginOption{first}, []conf.PluginOption{last}
}

func (w *witness) noteEnqueue(job any, next string) int {
	if j, ok := job.(*api.JobInfo); ok {
		w.noteAsked(mayEnqueue, string(j.UID), next)
	}
	return pluginutil.Abstain
}

func (w *witness) noteOverused(queue any, next string) bool {
	if q, ok := queue.(*api.QueueInfo); ok {
		w.noteAsked(isOverused, string(q.UID), next)
	}
	return false
}

// noteAsked notes that a plugin is asked next about a subject; "" for one that is not known.
func (w *witness) noteAsked(q question, subject, next string) {
	if w.subject[q] != subject {
		w.recordOutcome(q)
		w.subject[q] = subject
	}
	w.voter[q] = next
}

// recordOutcome writes down how the last question ended: the next plugin was not asked about it.
func (w *witness) recordOutcome(q question) {
	switch subject, voter := w.subject[q], w.voter[q]; {
	case subject == "":
	case voter == "":
		delete(w.refused[q], subject)
	default:
		if w.refused[q] == nil {
			w.refused[q] = map[string]string{}
		}
		w.refused[q][subject] = voter
	}
	w.subject[q] = ""
}

// saidNo returns the plugin that said no to a question about a subject, "" if none is known to.
func (w *witness) saidNo(q question, subject string) string {
	w.recordOutcome(q)
	return w.refused[q][subject]
}

// ExplainAfterActions makes Volcano's actions end with what the plugin tells waiting pods, counts
// whom they evict, and notes that the session goes on. It must run after the actions were
// registered and before the scheduler reads its configuration.
//
// The end of the session is too late: plugins close it in no order, and gang writes what it finds
// into the group of the pods.
func (s *Store) ExplainAfterActions() {
	for _, name := range []string{"enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle"} {
		if a, ok := framework.GetAction(name); ok {
			framework.RegisterAction(s.Explained(a))
		}
	}
}

// Explained returns an action of Volcano that ends with what the plugin tells waiting pods.
func (s *Store) Explained(a framework.Action) framework.Action { return explainedAction{a, s} }

// explainedAction is an action of Volcano of which the evictions are counted. The last one of a
// session explains.
type explainedAction struct {
	framework.Action
	store *Store
}

// Execute implements framework.Action.
func (a explainedAction) Execute(ssn *framework.Session) {
	a.store.pulse.Beat("action " + a.Name() + " began")
	a.Action.Execute(ssn)
	a.store.pulse.Beat("action " + a.Name() + " ended")
	p := a.store.current
	if p == nil {
		a.store.standAside()
		return
	}
	p.countEvictions(a.Name())
	if p.actions++; p.actions >= len(conf.EnabledActionMap) {
		p.explainWaiting(ssn)
	}
}

// triedBefore reports whether Volcano did not look at any node for the task, because another one
// of its kind fitted nowhere.
const triedBefore = "has already predicated failed, skip"

// isStillPending reports whether Volcano has nothing to say of the task: it is not promised
// anything.
func isStillPending(t *api.TaskInfo) bool {
	if t.SchGated {
		return false // the API server says why
	}
	if t.LastTransaction != nil {
		return t.LastTransaction.Status == api.Pending
	}
	return t.Status == api.Pending
}

// setFitErrors makes Volcano write the text into the condition and the event of the task's pod.
func setFitErrors(job *api.JobInfo, t *api.TaskInfo, text *api.FitErrors) {
	job.NodesFitErrors[t.UID] = text
}

// showJob makes Volcano write the text of a pod into the condition and the event of the job's
// group.
func showJob(job *api.JobInfo, pod, text string) {
	job.JobFitErrors = withoutVerbs("pod " + pod + ": " + text)
}

// asFitErrors makes what show takes. One value may serve many tasks.
func asFitErrors(text string) *api.FitErrors {
	f := api.NewFitErrors()
	f.SetError(withoutVerbs(text))
	return f
}

// overcommitFactor is how many times what the cluster has plugin overcommit lets jobs ask for.
func overcommitFactor(tiers []conf.Tier) float64 {
	for i := range tiers {
		for _, o := range tiers[i].Plugins {
			if o.Name == "overcommit" {
				factor := 0.0
				framework.Arguments(o.Arguments).GetFloat64(&factor, "overcommit-factor")
				if factor >= 1 {
					return factor
				}
			}
		}
	}
	return 1.2
}
