// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// heldBack is why a job was not let in: no node was looked at.
func (e *explanation) heldBack(job *api.JobInfo) string {
	return e.facts.held.computeOnce(func() string { return e.findHeldBack(job) })
}

// findHeldBack is heldBack. Jobs that are held back by the same share a text.
func (e *explanation) findHeldBack(job *api.JobInfo) string {
	by := heldBy{voter: e.Witness.saidNo(mayEnqueue, string(job.UID)), queue: job.Queue, wants: minResourcesKey(job)}
	text, known := e.held[by]
	if !known {
		text = e.whyHeld(job, by.voter)
		e.held[by] = text
	}
	return text
}

func (e *explanation) whyHeld(job *api.JobInfo, voter string) string {
	const held = "the job is held back before any node is looked at: "
	if closed := e.queueClosedText(job); closed != "" {
		return held + closed
	}
	switch voter {
	case "":
		return held + "its turn has not come, or a plugin of the scheduler keeps it"
	case "overcommit":
		return held + e.overcommitText(job)
	case "proportion", "capacity":
		return held + e.queueIsFull(job, voter)
	case "resourcequota":
		return held + "a ResourceQuota of namespace " + job.Namespace + " has no room for it"
	default:
		return held + "plugin " + voter + " of the scheduler keeps it"
	}
}

// queueClosedText says that the queue of a job takes none, "" if it does.
func (e *explanation) queueClosedText(job *api.JobInfo) string {
	q, ok := e.Queues[job.Queue]
	if !ok {
		return "there is no queue " + string(job.Queue)
	}
	if state := q.Queue.Status.State; state != scheduling.QueueStateOpen {
		return fmt.Sprintf("queue %s is not open but %s. It takes jobs again when it is opened", q.Name, strings.ToLower(string(state)))
	}
	return ""
}

// overcommitText says what plugin overcommit counts. Its sums are those of the whole cluster.
func (e *explanation) overcommitText(job *api.JobInfo) string {
	factor := overcommitFactor(e.Tiers)
	text := fmt.Sprintf("plugin overcommit lets jobs ask for %s times what the cluster has", strconv.FormatFloat(factor, 'g', -1, 64))
	want := job.GetMinResources()
	for _, name := range namesIn(want) {
		has := e.TotalResource.Get(name)
		taken := e.sums.usedAmount(name) + e.sums.promisedAmount(name)
		if limit := has * factor; taken+want.Get(name) > limit {
			text += fmt.Sprintf("; the job asks for %s of %s, %s of %s are used or promised",
				e.formatAmount(name, want.Get(name)), name, e.formatAmount(name, taken), e.formatAmount(name, limit))
		}
	}
	return text
}

// queueIsFull says what the capability of a queue leaves. The plugin counts more, such as what is
// guaranteed to other queues: then there are no amounts to tell.
func (e *explanation) queueIsFull(job *api.JobInfo, voter string) string {
	q := e.Queues[job.Queue]
	capability, used, want := api.NewResource(q.Queue.Spec.Capability), api.NewResource(q.Queue.Status.Allocated), job.GetMinResources()
	text := ""
	for _, name := range namesIn(want) {
		promised := e.sums.promisedIn(job.Queue, name)
		if exceedsCapability(q, name, promised+want.Get(name)) {
			text += fmt.Sprintf("; the job asks for %s of %s, %s of the queue's capability of %s are used or promised",
				e.formatAmount(name, want.Get(name)), name, e.formatAmount(name, used.Get(name)+promised), e.formatAmount(name, capability.Get(name)))
		}
	}
	return fmt.Sprintf("queue %s has no room for it (plugin %s)%s", q.Name, voter, text)
}

// ExceedsCapability reports whether a job would exceed what its queue may ever have, as far as the
// queue's own amounts tell.
func ExceedsCapability(q *api.QueueInfo, job *api.JobInfo) bool {
	want := job.GetMinResources()
	return slices.ContainsFunc(namesIn(want), func(name corev1.ResourceName) bool { return exceedsCapability(q, name, want.Get(name)) })
}

// exceedsCapability reports whether a queue has a capability of a resource that is less than what
// it has and so much more.
func exceedsCapability(q *api.QueueInfo, name corev1.ResourceName, more float64) bool {
	limit, limited := q.Queue.Spec.Capability[name]
	capability, used := api.NewResource(q.Queue.Spec.Capability), api.NewResource(q.Queue.Status.Allocated)
	return limited && !limit.IsZero() && used.Get(name)+more > capability.Get(name)
}

// queueRefuses is why Volcano looked at no node for a task of a job that was let in, "" if the
// queue is not the reason.
func (e *explanation) queueRefuses(job *api.JobInfo, t *api.TaskInfo) string {
	voter := e.Witness.saidNo(mayAllocate, string(t.UID))
	if voter == "" {
		voter = e.Witness.saidNo(isOverused, string(job.Queue))
	}
	if voter == "" {
		return ""
	}
	if closed := e.queueClosedText(job); closed != "" {
		return closed
	}
	return fmt.Sprintf("queue %s has all that plugin %s gives it now: pods of the queue have to end, or of queues that have more than their share",
		e.Queues[job.Queue].Name, voter)
}

// sums are those that plugins compare jobs with, counted when they are asked for.
type sums struct {
	ssn      *framework.Session
	inUse    map[corev1.ResourceName]float64
	inqueue  *api.Resource
	byQueue  map[api.QueueID]*api.Resource
	wasAsked bool
}

func newSums(ssn *framework.Session) *sums {
	return &sums{ssn: ssn, inUse: map[corev1.ResourceName]float64{}}
}

// usedAmount is what pods have of a resource.
func (s *sums) usedAmount(name corev1.ResourceName) float64 {
	sum, known := s.inUse[name]
	if !known {
		for _, n := range s.ssn.Nodes {
			sum += n.Used.Get(name)
		}
		s.inUse[name] = sum
	}
	return sum
}

// promisedAmount is what jobs ask for that were let in and do not run yet.
func (s *sums) promisedAmount(name corev1.ResourceName) float64 {
	s.sumPromised()
	return s.inqueue.Get(name)
}

// promisedIn is promised in one queue.
func (s *sums) promisedIn(queue api.QueueID, name corev1.ResourceName) float64 {
	s.sumPromised()
	if r, ok := s.byQueue[queue]; ok {
		return r.Get(name)
	}
	return 0
}

func (s *sums) sumPromised() {
	if s.wasAsked {
		return
	}
	s.wasAsked, s.inqueue, s.byQueue = true, api.EmptyResource(), map[api.QueueID]*api.Resource{}
	for _, job := range s.ssn.Jobs {
		if job.PodGroup == nil || job.PodGroup.Status.Phase != scheduling.PodGroupInqueue || job.PodGroup.Spec.MinResources == nil {
			continue
		}
		least := job.DeductSchGatedResources(job.GetMinResources())
		s.inqueue.Add(least)
		if s.byQueue[job.Queue] == nil {
			s.byQueue[job.Queue] = api.EmptyResource()
		}
		s.byQueue[job.Queue].Add(least)
	}
}

// minResourcesKey is what a job asks for as a text that is equal for equal amounts. The order of a
// map may make several texts of one amount: then a reason is written twice.
func minResourcesKey(job *api.JobInfo) string {
	if job.PodGroup.Spec.MinResources == nil {
		return ""
	}
	text := make([]byte, 0, 128)
	for name, q := range *job.PodGroup.Spec.MinResources {
		text = append(append(text, name...), '=')
		text = append(strconv.AppendInt(text, q.MilliValue(), 10), ' ')
	}
	return string(text)
}

// namesIn lists the resources that are asked for, in a stable order.
func namesIn(r *api.Resource) []corev1.ResourceName {
	list := r.ResourceNames()
	slices.Sort(list)
	return list
}

// formatAmount writes an amount as people write it, memory and compute of devices with their unit.
func (e *explanation) formatAmount(name corev1.ResourceName, v float64) string {
	units := resource.NewQuantity(int64(math.Round(v/1000)), resource.DecimalSI)
	if limits := e.Settings.Limits(corev1.ResourceList{name: *units}); len(limits) > 0 {
		return limits[0].Text()
	}
	return plainAmount(name, v)
}

// plainAmount writes an amount of other resources. Volcano counts in thousandths, but for memory.
func plainAmount(name corev1.ResourceName, v float64) string {
	if name == corev1.ResourceMemory {
		return resource.NewQuantity(int64(v), resource.BinarySI).String()
	}
	return strconv.FormatFloat(math.Round(v)/1000, 'f', -1, 64)
}
