// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/wire"
)

// holding is what is known of the devices of one pod on a node. At most one of
// placement and unreadable is set; neither means the pod holds nothing.
type holding struct {
	placement *sharing.Placement
	// unreadable is why the pod's devices are not known.
	unreadable error
	// rulesUnread is why it cannot be read which neighbours the pod accepts, nil if it can.
	rulesUnread error
	// edited says that the pod's texts are not those it was bound with, which are
	// what counts.
	edited bool
	// unplaced says that the pod was bound without a placement and cannot start.
	unplaced bool
}

// readHolding finds out which devices a pod on the node holds, from what its state believes or from
// its annotations, and which neighbours it accepts there.
func (n *Node) readHolding(pod *corev1.Pod, state podstate.State) holding {
	h := n.selectHolding(pod, state)
	if h.placement == nil {
		return h
	}
	p := *h.placement
	p.Neighbours, h.rulesUnread = n.settings.NeighboursOf(pod)
	h.placement = &p
	return h
}

// selectHolding finds out which devices a pod on the node was given.
func (n *Node) selectHolding(pod *corev1.Pod, state podstate.State) holding {
	from := state.Sources(n.Name, pod.Annotations, IsScheduled(pod))
	if from.Given != nil {
		return holding{placement: from.Given, edited: from.Edited}
	}
	annotations := pod.Annotations
	if from.First != nil {
		annotations = from.First.Annotations()
	}
	h := n.decodeHolding(pod, annotations)
	if h.placement == nil && from.Otherwise != nil {
		h = holding{placement: from.Otherwise}
	}
	h.edited = from.Edited
	return h
}

func (n *Node) decodeHolding(pod *corev1.Pod, annotations map[string]string) (h holding) {
	names := n.settings.Names
	p, found, err := wire.ReadPlacement(annotations, corepod.Refs(pod, names), n.Inventory, n.settings.Factor)
	switch {
	case found && err == nil && p.Node == n.Name:
		p.Namespace = pod.Namespace
		h.placement = &p
	case !corepod.Asks(pod, podspec.Names{Number: names.Number}):
		// The kubelet never gives such a pod a device: it holds nothing, whatever
		// its annotations say.
	case err != nil:
		h.unreadable = fmt.Errorf("read the placement of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	case found:
		h.unreadable = fmt.Errorf("pod %s/%s is on node %s but its placement is for node %s", pod.Namespace, pod.Name, n.Name, p.Node)
	case n.HasOurPlugin() && !hasRunDeviceContainer(pod, names):
		h.unplaced = true
	default:
		h.unreadable = fmt.Errorf("pod %s/%s asks for devices and has no placement", pod.Namespace, pod.Name)
	}
	return h
}

// HasOurPlugin reports whether the node's device plugin is ours, which starts no
// container that no scheduler has given devices.
func (n *Node) HasOurPlugin() bool { return n.Object.Annotations[wire.NodeInventory] != "" }

// hasRunDeviceContainer reports whether a container that asks for devices has ever run: then
// there was a placement, and somebody has removed it.
func hasRunDeviceContainer(pod *corev1.Pod, names podspec.Names) bool {
	for _, ref := range corepod.Refs(pod, names) {
		for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range list {
				if c := &list[i]; ref.Asks && c.Name == ref.Name && (wasStarted(&c.State) || wasStarted(&c.LastTerminationState)) {
					return true
				}
			}
		}
	}
	return false
}

// wasStarted reports whether a container's state shows that it was started.
func wasStarted(s *corev1.ContainerState) bool {
	return s.Running != nil || s.Terminated != nil && !s.Terminated.StartedAt.IsZero()
}

// mayHold reports whether a pod on a node may hold devices: it asks for some, or
// it asked under resource names that the configuration has changed since.
// Annotations alone do not make a holder: anybody can write them on a pod.
func mayHold(pod *corev1.Pod, s *Settings) bool {
	if corepod.Asks(pod, s.Names) {
		return true
	}
	_, placed := pod.Annotations[wire.PodPlacement]
	return placed && corepod.AsksExtended(pod)
}
