// SPDX-License-Identifier: Apache-2.0

package room

import (
	"maps"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/holds"
)

// A session looks again at some of the jobs that no evictions helped last time. To plan for each of
// thousands would hold every session up.
const (
	// maxFirst is how many of them it takes in the order in which jobs are served.
	maxFirst = 8
	// maxOldest is how many of the others: those that were looked at the longest ago.
	maxOldest = 8
)

// hopeless are jobs that no evictions helped when that was looked at last, by action.
type hopeless struct {
	// sessions counts them, and last is in which one a job was looked at.
	sessions map[string]int64
	last     map[advised]int64
}

func newHopeless() *hopeless {
	return &hopeless{sessions: map[string]int64{}, last: map[advised]int64{}}
}

// again says at which of the hopeless jobs a session looks again: a few, until one of them is
// helped. Then all, since what helped that one may help others.
type again struct {
	*hopeless
	action string
	chosen map[api.JobID]bool
	all    bool
}

// beginSession begins a session in which these jobs starve, in their order. What is known of others
// is forgotten.
func (h *hopeless) beginSession(action string, jobs []*api.JobInfo) *again {
	h.sessions[action]++
	a := &again{hopeless: h, action: action, chosen: map[api.JobID]bool{}}
	starves := map[api.JobID]bool{}
	var known []api.JobID
	for _, job := range jobs {
		starves[job.UID] = true
		if _, is := h.last[advised{job.UID, action}]; is {
			known = append(known, job.UID)
		}
	}
	maps.DeleteFunc(h.last, func(of advised, _ int64) bool { return of.action == action && !starves[of.job] })
	first, oldest := maxFirst, maxOldest
	if action == holds.Consolidate {
		first, oldest = first/4, oldest/4
	}
	for _, job := range known[:min(first, len(known))] {
		a.chosen[job] = true
	}
	known = known[len(a.chosen):]
	slices.SortStableFunc(known, func(x, y api.JobID) int {
		return int(h.last[advised{x, action}] - h.last[advised{y, action}])
	})
	for _, job := range known[:min(oldest, len(known))] {
		a.chosen[job] = true
	}
	return a
}

// mayPlanFor reports whether the session may look at a job.
func (a *again) mayPlanFor(job api.JobID) bool {
	_, known := a.last[advised{job, a.action}]
	return !known || a.all || a.chosen[job]
}

// noteOutcome notes whether a job was helped. Of one for which the session had no time, nothing is
// known.
func (a *again) noteOutcome(job api.JobID, isHelped, hadTime bool) {
	of := advised{job, a.action}
	_, known := a.last[of]
	switch {
	case isHelped:
		a.all = a.all || known
		delete(a.last, of)
	case hadTime:
		a.last[of] = a.sessions[a.action]
	}
}
