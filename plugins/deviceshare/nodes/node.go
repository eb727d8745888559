// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing"
	"deviceshare/sharing/events"
	"deviceshare/sharing/place"
	"deviceshare/sharing/wire"
)

// ErrNoDevices is why a node without an inventory takes no pods with devices.
var ErrNoDevices = errors.New("the node publishes no devices")

var (
	errUnreadableInventory = errors.New("the inventory of the node's devices cannot be read")
	errNotReady            = errors.New("the node is not ready")
)

// Node is one node as the last snapshot showed it. It is never changed, apart from the
// answers that it remembers: a snapshot that differs makes a new one, so readers need
// no lock.
type Node struct {
	Name string
	// Object is the API object, nil if only pods on the node were seen.
	Object *corev1.Node
	// Inventory is nil if the node publishes no devices.
	Inventory *sharing.Inventory
	// Only is the mode that all devices are in, "" if there are several.
	Only sharing.Mode
	// Ledger is who holds what of the devices. It is set if Inventory is.
	Ledger *sharing.Ledger
	// Empty sums up what the node has when nobody is on it.
	Empty place.Summary
	// Unusable is why the node takes no pods with devices, nil if it does.
	Unusable error
	// SetAside is why the node's inventory is not used, if it cannot be read, and CordonsUnread
	// why all of its devices count as cordoned, if it cannot be read which are.
	SetAside, CordonsUnread *Problem
	// Blocking are the pods whose devices are not known, Edited those whose texts were
	// changed after they were bound, Unplaced those that were bound without a placement, and
	// RulesUnread those of which it cannot be read whom they accept as neighbours.
	Blocking, Edited, Unplaced, RulesUnread []Problem
	// Claims is what ResourceClaims hold of the devices, nil if they hold nothing.
	Claims *claims.OnNode

	// settings, Object and tasks are what the node was read from. Informers replace an
	// object when it changes, and holding it here keeps its address from being used
	// again.
	settings *Settings
	tasks    map[string]*corev1.Pod
	// cordonEnds is when the first cordon ends, "" if none does; drains says that a device is
	// drained.
	cordonEnds string
	drains     bool
	// claimsOver are claims that were lost and that nobody on the node has any more.
	claimsOver []sharing.Owner
	// holdings are kept by pod object, for pods that did not change.
	holdings map[*corev1.Pod]holding
	// refusals and scores are the only things that are written later.
	refusals answerCache[sharing.Refusals]
	scores   answerCache[float64]
}

// Problem is something wrong with an object that its owner has to know. It is
// comparable: the same problem is reported once.
type Problem struct {
	Object  corev1.ObjectReference
	Reason  string
	Message string
}

// objectReference returns the object the problem is about.
func (p Problem) objectReference() *corev1.ObjectReference { return &p.Object }

// Problems visits everything that is wrong with the node and the pods on it.
func (n *Node) Problems() iter.Seq[Problem] {
	return func(yield func(Problem) bool) {
		for _, p := range []*Problem{n.SetAside, n.CordonsUnread} {
			if p != nil && !yield(*p) {
				return
			}
		}
		for _, list := range [][]Problem{n.Blocking, n.Edited, n.Unplaced, n.RulesUnread} {
			for _, p := range list {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// uid tells a node from one that is registered under the same name later.
func (n *Node) uid() types.UID {
	if n.Object == nil {
		return ""
	}
	return n.Object.UID
}

// isCurrent reports whether the snapshot shows what the node was read from. It is asked
// for every node at every session, so it compares identities only.
func (n *Node) isCurrent(host Host, s *Settings, held *claims.OnNode, now string) bool {
	if n == nil || n.Object != host.Node() || n.settings != s || n.Claims != held || n.hasCordonEnded(now) {
		return false
	}
	// Of a node without devices it does not matter who is on it.
	return n.Inventory == nil || host.ShowsExactly(n.tasks)
}

// readNode makes the state of a node from a snapshot. prev is what was known of
// the node, or nil; what did not change is taken over from it. It reads the states of
// pods and changes nothing, so it is safe to run for many nodes at once.
func (c *Cluster) readNode(prev *Node, host Host, s *Settings, now string) *Node {
	n := &Node{Name: host.Name(), Object: host.Node(), Claims: c.claims.On(host.Name()), settings: s}
	if n.Object == nil {
		return n
	}
	n.readInventory(prev, now)
	if n.Inventory == nil {
		n.Unusable = ErrNoDevices
		if n.SetAside != nil {
			n.Unusable = errUnreadableInventory
		}
		return n
	}
	n.Unusable, n.Only = requireUsable(n.Object, s.Names.Number), onlyMode(n.Inventory)
	n.tasks = make(map[string]*corev1.Pod, host.Len())
	n.holdings = make(map[*corev1.Pod]holding, host.Len())
	n.Ledger = sharing.NewLedger(n.Inventory, c.backends)
	n.Empty = place.Summarize(n.Ledger.Views())
	for owner, p := range c.pods.underwayTo(n.Name) {
		n.Ledger.Record(owner, p)
	}
	for key, pod := range host.Pods() {
		n.tasks[key] = pod
		if state := c.pods.State(ownerOf(pod)); state.FirstOn(n.Name) || mayHold(pod, s) {
			n.recordHolding(prev, pod, state)
		}
	}
	n.recordClaims(host)
	return n
}

func (n *Node) readInventory(prev *Node, now string) {
	if prev != nil && prev.settings == n.settings && prev.Object != nil && sameInventory(prev.Object, n.Object) && !prev.hasCordonEnded(now) {
		n.Inventory, n.SetAside = prev.Inventory, prev.SetAside
		n.CordonsUnread, n.cordonEnds, n.drains = prev.CordonsUnread, prev.cordonEnds, prev.drains
		return
	}
	inv, found, err := wire.ReadNode(n.Object.Annotations, n.Name, n.settings.Factor)
	switch {
	case err != nil:
		n.SetAside = &Problem{
			Object:  NodeReference(n.Object),
			Reason:  events.DeviceInventoryUnreadable,
			Message: fmt.Sprintf("the devices of the node are not used: read its inventory: %v", err),
		}
	case found:
		inv = n.applyCordons(inv, now)
		n.Inventory = &inv
	}
}

func (n *Node) recordHolding(prev *Node, pod *corev1.Pod, state podstate.State) {
	h, unchanged := n.previousHolding(prev, pod)
	if !unchanged {
		h = n.readHolding(pod, state)
	}
	if state.Decision() == nil {
		n.holdings[pod] = h
	}
	switch {
	case h.placement != nil:
		n.Ledger.Record(sharing.Owner(pod.UID), *h.placement)
	case h.unreadable != nil:
		n.Ledger.Block(sharing.Owner(pod.UID))
		n.Blocking = append(n.Blocking, Problem{
			Object:  PodReference(pod),
			Reason:  events.DevicePlacementUnreadable,
			Message: fmt.Sprintf("every device of node %s counts as taken: %v", n.Name, h.unreadable),
		})
	case h.unplaced:
		n.Unplaced = append(n.Unplaced, Problem{
			Object: PodReference(pod),
			Reason: events.DevicePlacementMissing,
			Message: fmt.Sprintf("the pod asks for devices and was bound to node %s by scheduler %q without a placement: its containers cannot start, "+
				"and it counts as holding nothing; make it anew with the scheduler that runs deviceshare", n.Name, pod.Spec.SchedulerName),
		})
	}
	if h.rulesUnread != nil {
		n.RulesUnread = append(n.RulesUnread, Problem{
			Object:  PodReference(pod),
			Reason:  events.DeviceNeighboursUnreadable,
			Message: fmt.Sprintf("no other pod gets shares of the pod's devices on node %s until it can be read whom it accepts there: %v", n.Name, h.rulesUnread),
		})
	}
	if h.edited {
		n.Edited = append(n.Edited, Problem{
			Object: PodReference(pod),
			Reason: events.DevicePlacementEdited,
			Message: fmt.Sprintf("the annotations by which the pod holds devices of node %s were changed after it was bound: "+
				"it counts as holding what it was bound with", n.Name),
		})
	}
}

// previousHolding returns what was read from this pod object before. A decision is not read from
// the pod, so what rests on one is not kept.
func (n *Node) previousHolding(prev *Node, pod *corev1.Pod) (holding, bool) {
	if prev == nil || prev.Inventory != n.Inventory || prev.settings != n.settings {
		return holding{}, false
	}
	h, ok := prev.holdings[pod]
	return h, ok
}

// requireUsable returns an error if a node takes no pods with devices. A node whose
// device plugin has gone away keeps its annotations; what it offers drops to zero.
func requireUsable(node *corev1.Node, number string) error {
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Type != corev1.NodeReady || c.Status != corev1.ConditionTrue {
			continue
		}
		offered := node.Status.Allocatable[corev1.ResourceName(number)]
		if offered.Sign() <= 0 {
			return fmt.Errorf("the node offers no %s: its device plugin is not running", number)
		}
		return nil
	}
	return errNotReady
}

func sameInventory(a, b *corev1.Node) bool {
	return a.Name == b.Name && !slices.ContainsFunc(wire.NodeKeys(), func(key string) bool {
		text, has := a.Annotations[key]
		other, too := b.Annotations[key]
		return text != other || has != too
	})
}

// NodeReference returns what an event about a node names.
func NodeReference(n *corev1.Node) corev1.ObjectReference {
	// Events on nodes carry the name as UID: that is what the kubelet writes and
	// kubectl looks for.
	return corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: n.Name, UID: types.UID(n.Name)}
}

// PodReference returns what an event about a pod names.
func PodReference(p *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// onlyMode is the mode all devices of a node are in, "" if there are several.
func onlyMode(inv *sharing.Inventory) sharing.Mode {
	if len(inv.Devices) == 0 {
		return ""
	}
	mode := inv.Devices[0].Mode
	for i := range inv.Devices {
		if inv.Devices[i].Mode != mode {
			return ""
		}
	}
	return mode
}
