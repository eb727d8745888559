// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"strings"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
)

// lazyValue is something that is found out when it is first asked for.
type lazyValue[T any] struct {
	known bool
	value T
}

// computeOnce returns the fact, and finds it out if it is not known.
func (f *lazyValue[T]) computeOnce(find func() T) T {
	if !f.known {
		f.known, f.value = true, find()
	}
	return f.value
}

// jobFacts are what the waiting pods of one job have in common. To find them out takes a look at
// all pods of the job, so no pod must do that for itself.
type jobFacts struct {
	incomplete, held, gangFits, othersFirst, short lazyValue[string]
	fitting                                        lazyValue[int]
	// refused are texts of shortages of quota, "" for none, by who asks for what.
	refused map[asksOfQuota]string
	// asked are the answers of nodes to one pod of each role, for those that were not asked about.
	asked lazyValue[map[string]*api.FitErrors]
	// said are the texts of such answers.
	said map[*api.FitErrors]answer
}

// answer is what nodes said to a pod. Sums says that a sum of the node is short.
type answer struct {
	text string
	sums bool
}

// gangIncomplete is why plugin gang does not look at a job yet, "" if it does: the job has too few
// pods.
func (e *explanation) gangIncomplete(job *api.JobInfo) string {
	return e.facts.incomplete.computeOnce(func() string {
		v := e.JobValid(job)
		if v == nil || v.Pass {
			return ""
		}
		if n := job.ValidTaskNum(); n < job.MinAvailable {
			return fmt.Sprintf("the gang has %d of the %d pods it needs to start (minAvailable): it waits until the others are made", n, job.MinAvailable)
		}
		return "the gang is not complete: " + v.Message
	})
}

// nodesSay is what the nodes say, as Volcano counts it, "" if none was asked. Sums that are short
// hide what single devices say, so that comes with it.
func (e *explanation) nodesSay(job *api.JobInfo, t *api.TaskInfo, a *Ask) (text, devices string) {
	f := job.NodesFitErrors[t.UID]
	if f == nil {
		return "", ""
	}
	if wasSkipped(f) {
		if asked := e.askedFor(job, t); asked != nil {
			f = asked
		}
	}
	said := e.readAnswer(f)
	if said.sums {
		return said.text, e.summarizeDevices(t, a)
	}
	return said.text, ""
}

func (e *explanation) readAnswer(f *api.FitErrors) answer {
	if known, ok := e.facts.said[f]; ok {
		return known
	}
	said := answer{text: f.Error()}
	for _, name := range []string{e.Settings.Names.Number, e.Settings.Names.Memory, e.Settings.Names.Cores} {
		said.sums = said.sums || name != "" && strings.Contains(said.text, "Insufficient "+name)
	}
	if e.facts.said == nil {
		e.facts.said = map[*api.FitErrors]answer{}
	}
	e.facts.said[f] = said
	return said
}

// wasSkipped reports whether Volcano asked no node about a task.
func wasSkipped(f *api.FitErrors) bool { return strings.HasSuffix(f.Error(), triedBefore) }

// askedFor returns what the nodes said to another task of the same kind that Volcano asked for in
// the task's place, nil if there is none. Of several it is that of the first one by name, so that
// the text does not change from one session to the next.
func (e *explanation) askedFor(job *api.JobInfo, t *api.TaskInfo) *api.FitErrors {
	return e.facts.asked.computeOnce(func() map[string]*api.FitErrors {
		asked, first := map[string]*api.FitErrors{}, map[string]string{}
		for id, other := range job.TaskStatusIndex[api.Pending] {
			f := job.NodesFitErrors[id]
			if f == nil {
				continue
			}
			name, found := first[other.TaskRole]
			if (!found || other.Name < name) && !wasSkipped(f) {
				asked[other.TaskRole], first[other.TaskRole] = f, other.Name
			}
		}
		return asked
	})[t.TaskRole]
}

// gangFits says how many pods of a gang would fit, if any would.
func (e *explanation) gangFits(job *api.JobInfo) string {
	return e.facts.gangFits.computeOnce(func() string {
		if fit := e.countFittingPods(job); job.MinAvailable > 1 && fit > 0 {
			return fmt.Sprintf("Of the %d pods the gang needs to start, %d fit", job.MinAvailable, fit)
		}
		return ""
	})
}

// othersFirst is why a task was not looked at: the gang had failed before, or its turn has not
// come.
func (e *explanation) othersFirst(job *api.JobInfo) string {
	return e.facts.othersFirst.computeOnce(func() string {
		if job.MinAvailable < 2 {
			return ""
		}
		return fmt.Sprintf("the gang needs %d pods to start, %d fit: see the events of its other pods", job.MinAvailable, e.countFittingPods(job))
	})
}

// countFittingPods is how many pods of a job have a node, or would have one if the gang could
// start.
func (e *explanation) countFittingPods(job *api.JobInfo) int {
	return e.facts.fitting.computeOnce(func() int {
		n := int(job.ReadyTaskNum() + job.WaitingTaskNum())
		for _, t := range job.TaskStatusIndex[api.Pending] {
			if !isStillPending(t) && !t.SchGated {
				n++
			}
		}
		return n
	})
}

// overQuota says which limit of a queue or namespace keeps the task, or its whole job, from being
// allocated; "" if none does.
func (e *explanation) overQuota(job *api.JobInfo, t *api.TaskInfo, a *Ask) string {
	if e.Limits == nil {
		return ""
	}
	if text := e.shortageText(t, a); text != "" {
		return text
	}
	return e.facts.short.computeOnce(func() string {
		if short, is := e.Limits.JobShortage(job); is {
			return short.String()
		}
		return ""
	})
}

// asksOfQuota is what the answer of limits to the tasks of one job depends on.
type asksOfQuota struct {
	kind   *nodes.Kind
	quotas string
}

// shortageText says which limit keeps the task from being allocated, "" for none: what it would
// exceed now, or else when Volcano asked last. It is found out once for tasks of a kind.
func (e *explanation) shortageText(t *api.TaskInfo, a *Ask) string {
	key := asksOfQuota{a.Kind, e.Limits.QuotasOf(t)}
	text, known := e.facts.refused[key]
	if !known || a.Kind == nil {
		if short := e.Limits.AllowanceNow(t, a.Request).Unavoidable(); short != nil {
			text = short.String()
		} else {
			text = ""
		}
		if e.facts.refused == nil {
			e.facts.refused = map[asksOfQuota]string{}
		}
		e.facts.refused[key] = text
	}
	if text != "" {
		return text
	}
	if short, refused := e.Limits.Refused(t); refused {
		return short.String()
	}
	return ""
}
