// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/podspec/corepod"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// fillReport says what became of the pods, and of the cluster.
func (r *run) fillReport() {
	after := r.currentCluster()
	before := view.Read(r.state, r.question.Backends)
	r.out.Before, r.out.After = r.countTotals(before, wholePods(r.state)), r.countTotals(after, r.cluster.Pods())
	r.out.Nodes = view.CompareNodes(before, after)
	holdings := map[string][]view.Holding{}
	for _, h := range after.Pods("") {
		name := h.Namespace + "/" + h.Pod
		holdings[name] = append(holdings[name], h)
	}
	for _, a := range r.asked {
		if o := r.podOutcome(&a); a.was != view.Waited || o.Node != "" {
			o.Holds = holdings[o.Pod]
			r.out.Pods = append(r.out.Pods, o)
		}
	}
	for _, e := range r.cluster.Evicted() {
		r.out.Evicted = append(r.out.Evicted, view.Evicted{Pod: e.Pod.Namespace + "/" + e.Pod.Name, Node: e.Pod.Spec.NodeName, Why: e.Reason})
	}
	r.noteMissingBudgets()
	for _, p := range slices.Sorted(slices.Values(r.cluster.Problems())) {
		r.addNote("The scheduler reports: " + p)
	}
}

// noteMissingBudgets doubts evictions where the capture does not say which pods budgets protect.
// Every cluster has namespaces: where a capture has none, budgets were not read either.
func (r *run) noteMissingBudgets() {
	if s := r.state.Scheduling; len(r.cluster.Evicted()) > 0 && len(s.Namespaces)+len(s.Budgets) == 0 {
		r.addNote("The capture has neither namespaces nor PodDisruptionBudgets: an earlier program took it, or its user had no right to read them. " +
			"Some evictions may be forbidden in the cluster.")
	}
}

// podOutcome says where a pod is, or why it is nowhere.
func (r *run) podOutcome(a *asked) view.Outcome {
	o := view.Outcome{Pod: a.name.String(), Was: a.was}
	p, there := r.cluster.Pod(a.name)
	switch {
	case a.refused != "":
		o.Why = "the webhook refuses it: " + a.refused
	case !there:
		o.Why = "it was placed, and evicted for another pod"
	case p.Spec.NodeName != "":
		o.Node = p.Spec.NodeName
	case p.Spec.SchedulerName != r.question.SchedulerName:
		o.Why = fmt.Sprintf("it is for scheduler %q, which is not simulated", p.Spec.SchedulerName)
	case len(p.Spec.SchedulingGates) > 0:
		gate, remover := corepod.Gate(p)
		o.Why = fmt.Sprintf("its scheduling gate %q is set: %s", gate, remover)
	default:
		o.Why = cmp.Or(r.cluster.Why(p), "the scheduler has not looked at it: does its queue exist, and is it open?")
	}
	return o
}

// currentCluster is the cluster as views show it when all is done.
func (r *run) currentCluster() *view.Cluster {
	s := &capture.State{Taken: r.state.Taken, Hashed: r.state.Hashed, DeviceConfig: r.state.DeviceConfig, Queues: r.state.Queues}
	for _, n := range r.nodes {
		s.Add(n)
	}
	for _, p := range r.cluster.Pods() {
		s.Add(p)
	}
	for _, g := range r.cluster.Groups() {
		s.Add(g)
	}
	s.Sort()
	return view.Read(s, r.question.Backends)
}

// countTotals sums a cluster up. Waiting counts the pods of Volcano that have no node, with devices
// or without.
func (r *run) countTotals(c *view.Cluster, pods []*corev1.Pod) view.Totals {
	t := view.Totals{Models: c.Status().Models}
	for _, p := range pods {
		switch {
		case r.isWaiting(p):
			t.Waiting++
		case p.Spec.NodeName != "" && (p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodPending):
			t.Placed++
		}
	}
	return t
}
