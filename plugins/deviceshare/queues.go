// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"context"
	"fmt"
	"maps"

	fwk "k8s.io/kube-scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/quota"
)

// This file is the rest of what is different in other versions of Volcano: queues, and what
// Volcano asks about them.

// registerQuota answers for the queues in a session. Volcano allows what all plugins allow.
func (p *Plugin) registerQuota(ssn *framework.Session) {
	ssn.AddAllocatableFn(PluginName, func(_ *api.QueueInfo, t *api.TaskInfo) bool { return p.allocatable(t) })
	ssn.AddPreemptiveFn(PluginName, func(_, candidate any) bool {
		t, ok := candidate.(*api.TaskInfo)
		return !ok || p.preemptive(t)
	})
	ssn.AddSimulateAllocatableFn(PluginName, func(_ context.Context, state fwk.CycleState, _ *api.QueueInfo, t *api.TaskInfo) bool {
		tried, err := trialIn(state)
		return err == nil && p.allocatableAfter(t, tried)
	})
	ssn.AddSimulateRemoveTaskFn(PluginName, func(_ context.Context, state fwk.CycleState, _, gone *api.TaskInfo, _ *api.NodeInfo) error {
		tried, err := trialIn(state)
		if err == nil {
			tried.gone[gone.UID] = gone
		}
		return err
	})
	ssn.AddSimulateAddTaskFn(PluginName, func(_ context.Context, state fwk.CycleState, _, back *api.TaskInfo, _ *api.NodeInfo) error {
		tried, err := trialIn(state)
		if err == nil {
			delete(tried.gone, back.UID)
		}
		return err
	})
}

// allocatableAfter is allocatable in a dry run. It changes nothing.
func (p *Plugin) allocatableAfter(t *api.TaskInfo, tried *trial) bool {
	w := p.allowance(t, p.ask(t))
	if w == nil {
		return true
	}
	for _, gone := range tried.gone {
		w.ask.Gone = append(w.ask.Gone, sharing.Owner(gone.Pod.UID))
	}
	return w.short() == nil
}

// cycleStates is where Volcano keeps what is tried for a task. The session is one.
type cycleStates interface {
	GetCycleState(api.TaskID) *cycleState
}

// trialKey is where a trial is in a cycle state.
const trialKey = "deviceshare.quota"

// trial is which tasks Volcano has taken off a copy of a node, to see whether that helps.
type trial struct{ gone map[api.TaskID]*api.TaskInfo }

// Clone implements fwk.StateData. Each dry run has its own trial.
func (t *trial) Clone() fwk.StateData { return &trial{gone: maps.Clone(t.gone)} }

// beginTrial readies the state of a task for dry runs, in which nobody has left yet.
func (p *Plugin) beginTrial(t *api.TaskInfo) {
	if p.quota != nil {
		p.cycle.GetCycleState(t.UID).Write(trialKey, &trial{gone: map[api.TaskID]*api.TaskInfo{}})
	}
}

// trialIn returns the trial of a cycle state.
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

// queuesOf returns the queues of a session, with their limits of device memory and compute.
func queuesOf(ssn *framework.Session, s *nodes.Settings) []quota.Queue {
	queues := make([]quota.Queue, 0, len(ssn.Queues))
	for _, info := range ssn.Queues {
		if info == nil || info.Queue == nil {
			continue
		}
		spec := &info.Queue.Spec
		queues = append(queues, quota.Queue{
			Name: info.Name, Parent: spec.Parent, Capability: s.Limits(spec.Capability),
			Guarantee: s.Limits(spec.Guarantee.Resource), Deserved: s.Limits(spec.Deserved),
		})
	}
	return queues
}
