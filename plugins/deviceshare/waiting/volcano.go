// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"strings"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// This file holds what may be different in other versions of Volcano, with witness.go.

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

// tellPlace makes Volcano write the text, instead of its own, for a task that has a place in this
// session. Volcano has written the nominated node before and leaves it there.
func tellPlace(job *api.JobInfo, t *api.TaskInfo, text *api.FitErrors) {
	t.LastTransaction = &api.TransactionContext{Status: api.Pending}
	setFitErrors(job, t, text)
}

// showJob makes Volcano write the text of a pod into the condition and the event of the job's
// group.
func showJob(job *api.JobInfo, pod, text string) {
	job.JobFitErrors = WithoutVerbs("pod " + pod + ": " + text)
}

// asFitErrors makes what show takes. One value may serve many tasks.
func asFitErrors(text string) *api.FitErrors {
	f := api.NewFitErrors()
	f.SetError(WithoutVerbs(text))
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

// WithoutVerbs returns a text that Volcano may show to people. Volcano writes it as it is into
// conditions, and for events it hands it to a function that formats, without arguments: "20% of"
// would become "20%!o(MISSING)f". No way of writing a percent sign survives both, so it becomes the
// full-width one. Our own sentences say percent; this is for what others wrote: annotations,
// models, answers of the API server.
func WithoutVerbs(text string) string { return strings.ReplaceAll(text, "%", "\uff05") }
