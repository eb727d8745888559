// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// texts are the annotations by which a pod on a node is read. Empty ones are
// absent: a pod with an empty text is unreadable and never confirmed.
type texts struct {
	placement, assigned, node string
	// modes is written by the user. Today's text is checked against it.
	modes string
}

func textsOf(annotations map[string]string) texts {
	return texts{
		placement: annotations[wire.PodPlacement], assigned: annotations[wire.PodAssigned],
		node: annotations[wire.PodNode], modes: annotations[wire.UserMode],
	}
}

// sameIn reports whether the annotations hold what the scheduler wrote.
func (t texts) sameIn(annotations map[string]string) bool {
	now := textsOf(annotations)
	now.modes = t.modes
	return now == t
}

// annotations are the texts as a pod carries them.
func (t texts) annotations() map[string]string {
	out := make(map[string]string, 4)
	for key, text := range map[string]string{
		wire.PodPlacement: t.placement, wire.PodAssigned: t.assigned, wire.PodNode: t.node, wire.UserMode: t.modes,
	} {
		if text != "" {
			out[key] = text
		}
	}
	return out
}

// confirmation is what a bound pod was first read from.
type confirmation struct {
	pod   types.NamespacedName
	texts texts
}

// confirmations are the first texts of bound pods, by node. What a bound pod holds
// never changes, but whoever may patch a pod can write its annotations: a later
// text is reported and not believed. They are kept for as long as the pod exists,
// also while its node is away.
//
// Written by the session goroutine between readings; readings run beside each
// other.
type confirmations struct {
	byNode map[string]map[sharing.Owner]confirmation
	// absent are nodes that have a confirmed pod which the snapshot does not show.
	absent map[string]struct{}
}

func newConfirmations() *confirmations {
	return &confirmations{byNode: map[string]map[sharing.Owner]confirmation{}, absent: map[string]struct{}{}}
}

// of returns what a pod was first read from on the node.
func (c *confirmations) of(node string, o sharing.Owner) (texts, bool) {
	first, ok := c.byNode[node][o]
	return first.texts, ok
}

// learn takes in the pods of a node that were read for the first time.
func (c *confirmations) learn(n *nodeState) {
	for pod, h := range n.holdings {
		owner := sharing.Owner(pod.UID)
		if h.placement == nil || !scheduled(pod) {
			continue
		}
		if _, known := c.of(n.name, owner); known {
			continue
		}
		if c.byNode[n.name] == nil {
			c.byNode[n.name] = map[sharing.Owner]confirmation{}
		}
		c.byNode[n.name][owner] = confirmation{
			pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, texts: textsOf(pod.Annotations),
		}
	}
	if len(c.byNode[n.name]) > 0 {
		c.absent[n.name] = struct{}{} // forget looks
	}
}

// leave notes that a node is not in the snapshot any more.
func (c *confirmations) leave(node string) {
	if len(c.byNode[node]) > 0 {
		c.absent[node] = struct{}{}
	}
}

// forget drops pods that have ended. Not being shown is not enough: a node that is
// registered anew comes back before its pods do.
func (c *confirmations) forget(nodes map[string]*api.NodeInfo, pods corelisters.PodLister) {
	for name := range c.absent {
		away := false
		for owner, first := range c.byNode[name] {
			pod := &corev1.Pod{}
			pod.Namespace, pod.Name, pod.UID = first.pod.Namespace, first.pod.Name, types.UID(owner)
			switch {
			case shown(nodes[name], pod):
			case gone(pods, pod):
				delete(c.byNode[name], owner)
			default:
				away = true
			}
		}
		if len(c.byNode[name]) == 0 {
			delete(c.byNode, name)
		}
		if !away {
			delete(c.absent, name)
		}
	}
}
