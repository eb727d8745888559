// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"slices"
	"strings"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	pluginutil "volcano.sh/volcano/pkg/scheduler/plugins/util"
)

// This file holds what may be different in other versions of Volcano.

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
func (w *Witness) votingPlugins(q question) []string {
	switch q {
	case mayEnqueue:
		return []string{"resourcequota", "extender", "overcommit", "proportion", "capacity", w.Plugin}
	case mayAllocate:
		return []string{"proportion", "capacity", w.Plugin}
	default:
		return []string{"proportion", "capacity", "extender"}
	}
}

// isAsked reports whether the configuration has Volcano ask a plugin the question.
func (w *Witness) isAsked(o *conf.PluginOption, q question) bool {
	enabled := [questions]*bool{mayEnqueue: o.EnabledJobEnqueued, mayAllocate: o.EnabledAllocatable, isOverused: o.EnabledOverused}[q]
	return enabled != nil && *enabled && slices.Contains(w.votingPlugins(q), o.Name)
}

// Witness finds out which plugin said no. Volcano tells nobody, and asking a plugin again would
// count the job twice. So before and after each plugin that may say no there stands one that has
// no opinion and notes that it was asked: the plugin behind the last one of them has said no.
type Witness struct {
	// Plugin is the name of ours in the scheduler's configuration.
	Plugin string
	// refused says which plugin said no to which job, task or queue.
	refused [questions]map[string]string
	// subject and voter are the last one asked about, and the plugin that was asked next.
	subject, voter [questions]string
}

// StandBy puts the witness into the tiers of a session, of which it makes a copy: they are the
// scheduler's configuration.
func (w *Witness) StandBy(ssn *framework.Session) {
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
func (w *Witness) addObservers(ssn *framework.Session, o *conf.PluginOption) (before, after []conf.PluginOption) {
	yes := true
	first := conf.PluginOption{Name: w.Plugin + "/before/" + o.Name}
	last := conf.PluginOption{Name: w.Plugin + "/after/" + o.Name}
	if w.isAsked(o, mayEnqueue) {
		first.EnabledJobEnqueued, last.EnabledJobEnqueued = &yes, &yes
		ssn.AddJobEnqueueableFn(first.Name, func(job any) int { return w.noteEnqueue(job, o.Name) })
		ssn.AddJobEnqueueableFn(last.Name, func(job any) int { return w.noteEnqueue(job, "") })
	}
	if w.isAsked(o, mayAllocate) {
		first.EnabledAllocatable, last.EnabledAllocatable = &yes, &yes
		ssn.AddAllocatableFn(first.Name, func(_ *api.QueueInfo, t *api.TaskInfo) bool {
			w.noteAsked(mayAllocate, string(t.UID), o.Name)
			return true
		})
		ssn.AddAllocatableFn(last.Name, func(_ *api.QueueInfo, t *api.TaskInfo) bool { w.noteAsked(mayAllocate, string(t.UID), ""); return true })
	}
	if w.isAsked(o, isOverused) {
		first.EnabledOverused, last.EnabledOverused = &yes, &yes
		ssn.AddOverusedFn(first.Name, func(queue any) bool { return w.noteOverused(queue, o.Name) })
		ssn.AddOverusedFn(last.Name, func(queue any) bool { return w.noteOverused(queue, "") })
	}
	if first.EnabledJobEnqueued == nil && first.EnabledAllocatable == nil && first.EnabledOverused == nil {
		return nil, nil
	}
	return []conf.PluginOption{first}, []conf.PluginOption{last}
}

func (w *Witness) noteEnqueue(job any, next string) int {
	if j, ok := job.(*api.JobInfo); ok {
		w.noteAsked(mayEnqueue, string(j.UID), next)
	}
	return pluginutil.Abstain
}

func (w *Witness) noteOverused(queue any, next string) bool {
	if q, ok := queue.(*api.QueueInfo); ok {
		w.noteAsked(isOverused, string(q.UID), next)
	}
	return false
}

// noteAsked notes that a plugin is asked next about a subject; "" for one that is not known.
func (w *Witness) noteAsked(q question, subject, next string) {
	if w.subject[q] != subject {
		w.recordOutcome(q)
		w.subject[q] = subject
	}
	w.voter[q] = next
}

// recordOutcome writes down how the last question ended: the next plugin was not asked about it.
func (w *Witness) recordOutcome(q question) {
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
func (w *Witness) saidNo(q question, subject string) string {
	w.recordOutcome(q)
	return w.refused[q][subject]
}

// IsHeldBackOnlyBy reports whether some plugins, and no others, keep a job from being let in. Those
// after the first that said no have not been asked before: Volcano stops there.
func (w *Witness) IsHeldBackOnlyBy(ssn *framework.Session, job *api.JobInfo, plugins ...string) bool {
	first := w.saidNo(mayEnqueue, string(job.UID))
	if !slices.Contains(plugins, first) {
		return false
	}
	tiers := ssn.Tiers
	defer func() { ssn.Tiers = tiers }()
	ssn.Tiers = w.pluginsAfter(tiers, first, plugins)
	return ssn.JobEnqueueable(job)
}

// pluginsAfter returns the tiers from behind a plugin on, without some others and those of the
// witness.
func (w *Witness) pluginsAfter(tiers []conf.Tier, plugin string, but []string) (after []conf.Tier) {
	found := false
	for i := range tiers {
		var rest []conf.PluginOption
		for _, o := range tiers[i].Plugins {
			if found && !strings.HasPrefix(o.Name, w.Plugin+"/") && !slices.Contains(but, o.Name) {
				rest = append(rest, o)
			}
			found = found || o.Name == plugin
		}
		after = append(after, conf.Tier{Plugins: rest})
	}
	return after
}
