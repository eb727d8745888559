// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	k8sframework "k8s.io/kubernetes/pkg/scheduler/framework"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/quota"
)

// This file is what is different in other versions of Volcano: queues, and what Volcano asks about
// them.

// Register answers for the queues in a session, in the name of a plugin. Volcano allows what all
// plugins allow.
func (l *Limits) Register(ssn *framework.Session, plugin string) {
	ssn.AddAllocatableFn(plugin, func(_ *api.QueueInfo, t *api.TaskInfo) bool { return l.Allows(t) })
	ssn.AddPreemptiveFn(plugin, func(_, candidate any) bool {
		t, ok := candidate.(*api.TaskInfo)
		return !ok || l.MayReclaimFor(t)
	})
	ssn.AddSimulateAllocatableFn(plugin, func(_ context.Context, state fwk.CycleState, _ *api.QueueInfo, t *api.TaskInfo) bool {
		tried, err := trialIn(state)
		return err == nil && l.allowsAfter(t, tried)
	})
	ssn.AddSimulateRemoveTaskFn(plugin, func(_ context.Context, state fwk.CycleState, _, gone *api.TaskInfo, _ *api.NodeInfo) error {
		tried, err := trialIn(state)
		if err == nil {
			tried.gone[gone.UID] = gone
		}
		return err
	})
	ssn.AddSimulateAddTaskFn(plugin, func(_ context.Context, state fwk.CycleState, _, back *api.TaskInfo, _ *api.NodeInfo) error {
		tried, err := trialIn(state)
		if err == nil {
			delete(tried.gone, back.UID)
		}
		return err
	})
}

// allowsAfter is Allows in a dry run. It changes nothing.
func (l *Limits) allowsAfter(t *api.TaskInfo, tried *trial) bool {
	w := l.Allowance(t, l.Tasks.Request(t))
	if w == nil {
		return true
	}
	for _, gone := range tried.gone {
		w.ask.Gone = append(w.ask.Gone, sharing.Owner(gone.Pod.UID))
	}
	return w.Unavoidable() == nil
}

// CycleStates is where Volcano keeps what is tried for a task. The session is one.
type CycleStates interface {
	GetCycleState(api.TaskID) *k8sframework.CycleState
}

// trialKey is where a trial is in a cycle state.
const trialKey = "deviceshare.quota"

// trial is which tasks Volcano has taken off a copy of a node, to see whether that helps.
type trial struct{ gone map[api.TaskID]*api.TaskInfo }

// Clone implements fwk.StateData. Each dry run has its own trial.
func (t *trial) Clone() fwk.StateData { return &trial{gone: maps.Clone(t.gone)} }

// BeginTrial readies the state of a task for dry runs, in which nobody has left yet.
func (l *Limits) BeginTrial(cycle CycleStates, t *api.TaskInfo) {
	if l != nil {
		cycle.GetCycleState(t.UID).Write(trialKey, &trial{gone: map[api.TaskID]*api.TaskInfo{}})
	}
}

func trialIn(state fwk.CycleState) (*trial, error) {
	data, err := state.Read(trialKey)
	if err != nil {
		return nil, fmt.Errorf("read the evictions that are tried: %w", err)
	}
	t, ok := data.(*trial)
	if !ok {
		return nil, fmt.Errorf("read the evictions that are tried: a %T is in their place", data)
	}
	return t, nil
}

// tenureOf returns when a task of a status takes devices; false if it does not.
func tenureOf(status api.TaskStatus) (tenure quota.Tenure, takes bool) {
	switch {
	case api.AllocatedStatus(status), status == api.Unknown:
		return quota.Stays, true
	case status == api.Releasing:
		return quota.Leaves, true
	}
	return 0, false
}

// findHolder returns a pod on a node with the queue that it names, "" if it names none; false if
// the node does not show the pod.
func findHolder(info *api.NodeInfo, owner sharing.Owner) (holder, bool) {
	if info == nil {
		return holder{}, false
	}
	for _, t := range info.Tasks {
		if sharing.Owner(t.Pod.UID) == owner {
			return holder{t.Pod.Annotations[schedulingv1beta1.QueueNameAnnotationKey], t.Pod}, true
		}
	}
	return holder{}, false
}

// claimHolder returns whose limits a claim counts for: the queue that its first pod was placed
// from, and its namespace. It is false for nil, which is no claim.
func claimHolder(h *claims.Held) (holder, bool) {
	if h == nil {
		return holder{}, false
	}
	return holder{h.Queue, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.Name.Namespace, Name: h.Name.Name}}}, true
}

// Of returns the queues of a session, with their limits of devices. The number of devices
// that a queue deserves, or is guaranteed, is left to Volcano, which counts it exactly; a
// capability of it holds for pods that are leaving too, which Volcano does not count.
func Of(ssn *framework.Session, s *nodes.Settings) []quota.Queue {
	queues := make([]quota.Queue, 0, len(ssn.Queues))
	for _, info := range ssn.Queues {
		if info == nil || info.Queue == nil {
			continue
		}
		spec := &info.Queue.Spec
		queues = append(queues, quota.Queue{
			Name: info.Name, Parent: spec.Parent, Capability: s.Capability(spec.Capability),
			Guarantee: s.Limits(spec.Guarantee.Resource), Deserved: s.Limits(spec.Deserved),
		})
	}
	return queues
}
