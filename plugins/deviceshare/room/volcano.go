// SPDX-License-Identifier: Apache-2.0

package room

import (
	"errors"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
)

// This file holds what may be different in other versions of Volcano. It is written for v1.14.1.

// errNoSeam says that the evictions of actions cannot be taken over.
var errNoSeam = errors.New("this version of Volcano keeps its cache elsewhere: no pods are evicted")

// takeEvictions has what the actions of a session commit go to another cache until restore is
// called.
//
// Statement.Commit hands evictions to the cache of the session, and Volcano gives out neither that
// cache nor its evictor. The field is private: ADR 0058 says why it is set all the same.
func takeEvictions(ssn *framework.Session, to func(cache.Cache) cache.Cache) (restore func(), err error) {
	field := reflect.ValueOf(ssn).Elem().FieldByName("cache")
	if !field.IsValid() || field.Type() != reflect.TypeFor[cache.Cache]() {
		return nil, errNoSeam
	}
	place := (*cache.Cache)(field.Addr().UnsafePointer())
	before := *place
	*place = to(before)
	return func() { *place = before }, nil
}

// letJobIn lets a job into its queue; keepJobOut takes that back.
func letJobIn(job *api.JobInfo)   { job.PodGroup.Status.Phase = scheduling.PodGroupInqueue }
func keepJobOut(job *api.JobInfo) { job.PodGroup.Status.Phase = scheduling.PodGroupPending }

// canBeEvicted reports whether a statement may evict a task: to evict one twice, or one without a
// job, makes plugins panic.
func canBeEvicted(ssn *framework.Session, t *api.TaskInfo) bool {
	return t != nil && api.PreemptableStatus(t.Status) && ssn.Jobs[t.Job] != nil && ssn.Nodes[t.NodeName] != nil
}

// isWaiting reports whether a task waits to be placed.
func isWaiting(t *api.TaskInfo) bool { return t.Status == api.Pending && !t.SchGated }

// isBinding reports whether a task is on its way to a node.
func isBinding(t *api.TaskInfo) bool { return t != nil && t.Status == api.Binding }

// fitsNow reports whether a task fits a node as it is.
func fitsNow(ssn *framework.Session, t *api.TaskInfo, n *api.NodeInfo) bool {
	return t.InitResreq.LessEqual(n.Idle, api.Zero) && ssn.Allocatable(ssn.Queues[ssn.Jobs[t.Job].Queue], t) &&
		ssn.PrePredicateFn(t) == nil && ssn.PredicateForAllocateAction(t, n) == nil
}

// hasFutureRoom reports whether the sums of a node have room for a task once pods have left.
func hasFutureRoom(t *api.TaskInfo, n *api.NodeInfo) bool {
	return t.InitResreq.LessEqual(n.FutureIdle(), api.Zero)
}

// disruptionOf returns why a pod has to leave, as its condition says it.
func disruptionOf(pod *corev1.Pod) (holds.Reason, bool) {
	_, c := podutil.GetPodCondition(&pod.Status, corev1.DisruptionTarget)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != corev1.PodReasonPreemptionByScheduler {
		return holds.Reason{}, false
	}
	return holds.ParseReason(c.Message)
}
