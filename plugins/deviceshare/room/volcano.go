// SPDX-License-Identifier: Apache-2.0

package room

import (
	"errors"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	critical "k8s.io/kubernetes/pkg/apis/scheduling"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/util"

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

// mayPreempt reports whether a task wants others to be evicted for it.
func mayPreempt(t *api.TaskInfo) bool {
	p := t.Pod.Spec.PreemptionPolicy
	return p == nil || *p != corev1.PreemptNever
}

// isUntouchable reports whether a pod is never evicted: it is critical to the cluster, or a kubelet
// or a DaemonSet would make it again on the same node.
func isUntouchable(pod *corev1.Pod) bool {
	class := pod.Spec.PriorityClassName
	owner := metav1.GetControllerOf(pod)
	return pod.Namespace == metav1.NamespaceSystem || class == critical.SystemClusterCritical || class == critical.SystemNodeCritical ||
		pod.Annotations[corev1.MirrorPodAnnotationKey] != "" || owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node")
}

// isInShard reports whether a node belongs to this scheduler, where schedulers share the nodes.
func isInShard(ssn *framework.Session, n *api.NodeInfo) bool {
	mode := util.NoneShardingMode
	if options.ServerOpts != nil {
		mode = options.ServerOpts.ShardingMode
	}
	return mode == util.NoneShardingMode || mode == "" || ssn.NodesInShard == nil || ssn.NodesInShard.Has(n.Name)
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

// placeholderOf returns a task that asks for what another one does, which runs, and is on no node.
func placeholderOf(t *api.TaskInfo) *api.TaskInfo {
	pod := t.Pod.DeepCopy()
	pod.UID, pod.Name = "moves-"+pod.UID, pod.Name+"-moves"
	pod.Spec.NodeName, pod.DeletionTimestamp, pod.Status = "", nil, corev1.PodStatus{Phase: corev1.PodPending}
	again := api.NewTaskInfo(pod)
	again.Job, again.Priority = t.Job, t.Priority
	return again
}
