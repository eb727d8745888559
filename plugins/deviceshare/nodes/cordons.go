// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/events"
	"deviceshare/sharing/wire"
)

// applyCordons returns the node's inventory with the cordons that people wrote on the node. If they
// cannot be read, every device counts as cordoned: nobody can say which one is not to be used.
func (n *Node) applyCordons(inv sharing.Inventory, now string) sharing.Inventory {
	cordons, err := wire.ReadCordons(n.Object.Annotations)
	if err != nil {
		n.CordonsUnread = &Problem{
			Object:  NodeReference(n.Object),
			Reason:  events.DeviceCordonsUnreadable,
			Message: fmt.Sprintf("no device of the node takes new pods until it can be read which are cordoned: correct or remove the annotation %s: %v", wire.NodeCordon, err),
		}
		cordons = sharing.Cordons{}
		for i := range inv.Devices {
			cordons[inv.Devices[i].ID] = sharing.Cordon{Reason: "the annotation " + wire.NodeCordon + " cannot be read"}
		}
	}
	inv, n.cordonEnds = cordons.ApplyTo(inv, now)
	n.drains = slices.ContainsFunc(inv.Devices, func(d sharing.Device) bool { return d.Cordon != nil && d.Cordon.Drains })
	return inv
}

// DrainedDevice is a device whose pods have to leave it, because people said so.
type DrainedDevice struct {
	Node *corev1.Node
	*sharing.Device
	// Holders are the pods that have shares of it, Unknown those of which it cannot be read whether
	// they do.
	Holders, Unknown []*corev1.Pod
}

// Drained returns the devices that people drain, for the goroutine that follows.
func (c *Cluster) Drained() (drained []DrainedDevice) {
	for _, n := range c.nodes {
		if n.drains {
			drained = append(drained, n.drainedDevices()...)
		}
	}
	return drained
}

func (n *Node) drainedDevices() (drained []DrainedDevice) {
	pods := make(map[sharing.Owner]*corev1.Pod, len(n.tasks))
	for _, pod := range n.tasks {
		pods[ownerOf(pod)] = pod
	}
	views := n.Ledger.Views()
	for i := range views {
		v := &views[i]
		if c := v.Device.Cordon; c == nil || !c.Drains {
			continue
		}
		one, seen := DrainedDevice{Node: n.Object, Device: v.Device}, map[sharing.Owner]bool{}
		for _, h := range v.Held() {
			if pod := pods[h.Owner]; pod != nil && !seen[h.Owner] {
				seen[h.Owner], one.Holders = true, append(one.Holders, pod)
			}
		}
		for _, o := range n.Ledger.Blocking() {
			if pod := pods[o]; pod != nil {
				one.Unknown = append(one.Unknown, pod)
			}
		}
		drained = append(drained, one)
	}
	return drained
}

// hasCordonEnded reports whether a cordon has ended since the node was read.
func (n *Node) hasCordonEnded(now string) bool {
	return n.cordonEnds != "" && now >= n.cordonEnds
}
