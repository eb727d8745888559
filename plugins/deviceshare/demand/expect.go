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
	// from is the first node that may still have room for pods of a shape: what is idle only
	// becomes less.
	from map[string]int
	// added are the new nodes that the other pods bring, by type.
	added map[string][]Amounts
}

// expectAdditions says what an autoscaler makes of the pods of a filling. It takes them to the same
// types of nodes: which one it takes is a setting of its own.
func expectAdditions(f *filling, seen []Seen) *expectation {
	e := &expectation{seen: seen, from: map[string]int{}, added: map[string][]Amounts{}}
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
				e.addPod(p, h.of)
			}
		}
	}
	for name, n := range joining {
		e.added[name] = e.added[name][n:]
	}
	return e
}

// addPod puts a pod where it seems to fit, else on a new node of a type.
func (e *expectation) addPod(p *Pod, t *NodeType) {
	asked := requestsOf(p.Object)
	for ; e.from[p.shape] < len(e.seen); e.from[p.shape]++ {
		if i := e.from[p.shape]; nodes.KeptOff(p.Object, e.seen[i].Node) == "" && e.idle[i].takeIfFits(asked) {
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
