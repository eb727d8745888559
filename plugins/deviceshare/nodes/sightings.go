// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing"
)

// This file tells pods what snapshots and the API server show of them.

// addedNodes returns the nodes that were not in the snapshot before, by name. A node
// of another UID is another node.
func addedNodes(known map[string]*Node, fresh []*Node) map[string]struct{} {
	var out map[string]struct{}
	for _, n := range fresh {
		if old, ok := known[n.Name]; ok && old.uid() == n.uid() {
			continue
		}
		if out == nil {
			out = map[string]struct{}{}
		}
		out[n.Name] = struct{}{}
	}
	return out
}

// markAwaited lists, for nodes that appeared, the pods with devices that the API server has
// bound to them. Such a node is not used until the snapshot shows them. Volcano opens
// its first sessions when the informers have their lists, which is before its cache
// has worked through them: a node can be seen before its pods. So can a node that was
// deleted and registered anew: Volcano forgets its pods with it, and takes each in
// again when that pod changes next.
func (s *Pods) markAwaited(nodes map[string]struct{}, pods corelisters.PodLister, settings *Settings) {
	if len(nodes) == 0 {
		return
	}
	all, err := pods.List(labels.Everything())
	if err != nil {
		// A lister reads memory and does not fail.
		klog.ErrorS(err, "List the pods that are bound already")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range all {
		if _, appears := nodes[pod.Spec.NodeName]; !appears || !IsScheduled(pod) || isTerminal(pod) || !mayHold(pod, settings) {
			continue
		}
		s.applyEvent(ownerOf(pod), nameOf(pod), podstate.Event{Kind: podstate.List, Node: pod.Spec.NodeName})
	}
}

// compareAwaited tells awaited pods that the snapshot shows them, or that they ended.
func (s *Pods) compareAwaited(snapshot Snapshot, pods corelisters.PodLister) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, awaited := range s.awaited {
		for owner, pod := range awaited {
			switch {
			case showsPod(snapshot.Host(node), owner, pod):
				s.applyEvent(owner, pod, podstate.Event{Kind: podstate.Show})
			case isPodGone(pods, owner, pod):
				s.applyEvent(owner, pod, podstate.Event{Kind: podstate.End})
			}
		}
	}
}

// readFrom tells the pods of a node what was read from their annotations.
func (s *Pods) readFrom(n *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pod, h := range n.holdings {
		if h.placement == nil || !IsScheduled(pod) || s.states[ownerOf(pod)].FirstOn(n.Name) {
			continue
		}
		s.applyEvent(ownerOf(pod), nameOf(pod), podstate.Event{Kind: podstate.Read, Node: n.Name, Annotations: pod.Annotations})
	}
	s.markUnseen(n.Name)
}

// noteNodeRemoved notes that a node is not in the snapshot any more.
func (s *Pods) noteNodeRemoved(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markUnseen(node)
}

// markUnseen makes compareBound look at the bound pods of a node. The lock is held.
func (s *Pods) markUnseen(node string) {
	if len(s.bound[node]) > 0 {
		s.unseen[node] = struct{}{}
	}
}

// compareBound tells bound pods that they ended. Not being shown is not enough: a node
// that is registered anew comes back before its pods do.
func (s *Pods) compareBound(snapshot Snapshot, pods corelisters.PodLister) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node := range s.unseen {
		away := false
		for owner, pod := range s.bound[node] {
			switch {
			case showsPod(snapshot.Host(node), owner, pod):
			case isPodGone(pods, owner, pod):
				s.applyEvent(owner, pod, podstate.Event{Kind: podstate.End})
			default:
				away = true
			}
		}
		if !away {
			delete(s.unseen, node)
		}
	}
}

// Awaited says for each node that waits for pods which they are: one of them and how
// many more. It is the first by name, so that the text stays as it is.
func (s *Pods) Awaited() map[string]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[string]string, len(s.awaited))
	for node, pods := range s.awaited {
		names := make([]string, 0, len(pods))
		for _, pod := range pods {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
		out[node] = "pod " + slices.Min(names)
		if len(names) > 1 {
			out[node] = fmt.Sprintf("pod %s and %d more", slices.Min(names), len(names)-1)
		}
	}
	return out
}

// showsPod reports whether the snapshot has the pod on the node. A node that is not in
// the snapshot shows nothing, and is not used either.
func showsPod(host Host, owner sharing.Owner, pod types.NamespacedName) bool {
	if host == nil {
		return false
	}
	seen := host.Pod(pod)
	return seen != nil && ownerOf(seen) == owner
}

// isPodGone reports whether the pod was deleted or has ended.
func isPodGone(pods corelisters.PodLister, owner sharing.Owner, pod types.NamespacedName) bool {
	now, err := pods.Pods(pod.Namespace).Get(pod.Name)
	return err != nil || ownerOf(now) != owner || isTerminal(now)
}

// IsScheduled reports whether the API server has this pod bound to a node. The node name
// does not tell: Volcano writes it into the pods of its own cache before they are
// bound.
func IsScheduled(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
