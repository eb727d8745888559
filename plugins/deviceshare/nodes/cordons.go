// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"slices"
	"strings"

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
			Object: NodeReference(n.Object),
			Reason: events.DeviceCordonsUnreadable,
			Message: fmt.Sprintf("no device of the node takes new pods until it can be read which are cordoned: correct or remove the annotation %s: %s",
				wire.NodeCordon, strings.ReplaceAll(err.Error(), "\n", "; ")),
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
	Occupants
}

// Occupants are the pods that have shares of devices. Unknown are those of which it cannot be read
// whether they do.
type Occupants struct{ Holders, Unknown []*corev1.Pod }

// Drained returns the devices that people drain, for the goroutine that follows.
func (c *Cluster) Drained() (drained []DrainedDevice) {
	for _, n := range c.nodes {
		if !n.drains {
			continue
		}
		for i := range n.Inventory.Devices {
			if d := &n.Inventory.Devices[i]; d.Cordon != nil && d.Cordon.Drains {
				drained = append(drained, DrainedDevice{n.Object, d, n.OccupantsOf(d.ID)})
			}
		}
	}
	return drained
}

// OccupantsOf returns the pods that have shares of devices of the node.
func (n *Node) OccupantsOf(devices ...sharing.DeviceID) (o Occupants) {
	has, unread := map[sharing.Owner]bool{}, map[sharing.Owner]bool{}
	views := n.Ledger.Views()
	for i := range views {
		for _, h := range views[i].Held() {
			has[h.Owner] = has[h.Owner] || slices.Contains(devices, views[i].Device.ID)
		}
	}
	for _, owner := range n.Ledger.Blocking() {
		unread[owner] = true
	}
	for _, pod := range n.tasks {
		switch owner := ownerOf(pod); {
		case has[owner]:
			o.Holders = append(o.Holders, pod)
		case unread[owner]:
			o.Unknown = append(o.Unknown, pod)
		}
	}
	slices.SortFunc(o.Holders, byName)
	slices.SortFunc(o.Unknown, byName)
	return o
}

// hasCordonEnded reports whether a cordon has ended since the node was read.
func (n *Node) hasCordonEnded(now string) bool {
	return n.cordonEnds != "" && now >= n.cordonEnds
}
