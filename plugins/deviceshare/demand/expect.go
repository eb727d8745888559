// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/plugins/deviceshare/nodes"
)

// expectation is what autoscalers do by themselves, who add up amounts and know nothing of devices.
type expectation struct {
	seen []Seen
	// idle is what is left of each node once the pods are on it that seem to fit.
	idle []Amounts
	// added are the new nodes that the other pods bring, by type.
	added map[string][]Amounts
}

// expect says what an autoscaler makes of the pods of a filling. It takes them to the same types of
// nodes: which one it takes is a setting of its own.
func expect(f *filling, seen []Seen) *expectation {
	e := &expectation{seen: seen, added: map[string][]Amounts{}}
	for i := range seen {
		e.idle = append(e.idle, maps.Clone(seen[i].Idle))
	}
	for _, h := range f.hosts {
		if h.joins {
			e.added[h.of.Name] = append(e.added[h.of.Name], AmountsOf(h.of.Node.Status.Allocatable))
		}
	}
	joining := map[string]int{}
	for name, hosts := range e.added {
		joining[name] = len(hosts)
	}
	for _, h := range f.hosts {
		for _, p := range h.pods {
			if isUnschedulable(p.Object) {
				e.add(p.Object, h.of)
			}
		}
	}
	for name, n := range joining {
		e.added[name] = e.added[name][n:]
	}
	return e
}

// add puts a pod where it seems to fit, else on a new node of a type.
func (e *expectation) add(pod *corev1.Pod, t *NodeType) {
	asked := requestsOf(pod)
	for i := range e.seen {
		if nodes.KeptOff(pod, e.seen[i].Node) == "" && e.idle[i].takeIfFits(asked) {
			return
		}
	}
	if slices.ContainsFunc(e.added[t.Name], func(a Amounts) bool { return a.takeIfFits(asked) }) {
		return
	}
	if added := AmountsOf(t.Node.Status.Allocatable); added.takeIfFits(asked) {
		e.added[t.Name] = append(e.added[t.Name], added)
	}
}

// countEmpty is how many nodes that are there seem to have room for a utility pod.
func (e *expectation) countEmpty(w *Wish) int {
	pod, n := w.Pod(""), 0
	for i := range e.seen {
		if nodes.KeptOff(pod, e.seen[i].Node) == "" && e.idle[i].takeIfFits(requestsOf(pod)) {
			n++
		}
	}
	return n
}

// isUnschedulable reports whether autoscalers look at a pod.
func isUnschedulable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}
