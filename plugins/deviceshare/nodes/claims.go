// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/sharing"
	"deviceshare/sharing/events"
)

// recordClaims enters what ResourceClaims hold of the node's devices. One that was lost holds as
// long as a pod that had it is on the node.
func (n *Node) recordClaims(host Host) {
	if n.Claims == nil {
		return
	}
	for i := range n.Claims.Held {
		h := &n.Claims.Held[i]
		users := usersOf(h, host)
		switch {
		case h.IsLost && len(users) == 0:
			n.claimsOver = append(n.claimsOver, h.Owner)
		case h.Unreadable != nil:
			n.Ledger.Block(h.Owner)
			n.Blocking = append(n.Blocking, Problem{
				Object:  claimReference(h),
				Reason:  events.DevicePlacementUnreadable,
				Message: fmt.Sprintf("every device of node %s counts as taken: %v", n.Name, h.Unreadable),
			})
		default:
			n.Ledger.Record(h.Owner, n.placementOf(h, users))
		}
	}
}

// placementOf returns what a claim holds, with what counts between its pods and others. A claim is
// to its neighbours what the first of its pods on the node is.
func (n *Node) placementOf(h *claims.Held, users []*corev1.Pod) sharing.Placement {
	p := h.Placement
	p.Namespace = h.Name.Namespace
	if len(users) > 0 {
		p.Neighbours, _ = n.settings.NeighboursOf(users[0])
	}
	return p
}

// usersOf returns the pods on a node that may use a claim, in the order of their names.
func usersOf(h *claims.Held, host Host) (users []*corev1.Pod) {
	if len(h.Pods) == 0 {
		return nil
	}
	for _, pod := range host.Pods() {
		if slices.Contains(h.Pods, pod.UID) {
			users = append(users, pod)
		}
	}
	slices.SortFunc(users, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return users
}

func isPodOn(host Host, name types.NamespacedName, uid types.UID) bool {
	pod := host.Pod(name)
	return pod != nil && pod.UID == uid
}

func claimReference(h *claims.Held) corev1.ObjectReference {
	return corev1.ObjectReference{
		Kind: "ResourceClaim", APIVersion: "resource.k8s.io/v1", Namespace: h.Name.Namespace, Name: h.Name.Name, UID: types.UID(h.Owner),
	}
}
