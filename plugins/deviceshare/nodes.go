// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"iter"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/sharing"
	"deviceshare/sharing/place"
	"deviceshare/sharing/wire"
)

// nodeState is one node as the last snapshot showed it. It is never changed:
// a snapshot that differs makes a new one, so that readers need no lock.
type nodeState struct {
	name     string
	settings *Settings
	// node and tasks are the objects this was read from. They are the identity
	// of the state: informers replace an object when it changes, and holding it
	// here keeps its address from being used again.
	node  *corev1.Node
	tasks map[api.TaskID]*corev1.Pod
	// inventory is nil if the node publishes no devices.
	inventory *sharing.Inventory
	// only is the mode all devices are in, "" if there are several.
	only sharing.Mode
	// ledger is set if inventory is.
	ledger *sharing.Ledger
	// last is the last refusal, which is the only thing that workers write.
	last atomic.Pointer[answer]
	// empty sums up what the node has when nobody is on it.
	empty place.Summary
	// unusable says why the node takes no pods with devices; "" if it does.
	unusable string
	// holdings are kept by pod object, for pods that did not change.
	holdings map[*corev1.Pod]holding
	// setAside is why the node's inventory is not used, if it cannot be read.
	setAside *problem
	// blocking are the pods whose devices are not known, edited those whose texts
	// were changed after they were bound, unplaced those that were bound without a
	// placement.
	blocking, edited, unplaced []problem
}

// problem is something wrong with an object that its owner has to know. It is
// comparable: the same problem is reported once.
type problem struct {
	object  corev1.ObjectReference
	reason  string
	message string
}

// reference returns the object the problem is about.
func (p problem) reference() *corev1.ObjectReference { return &p.object }

// problems visits everything that is wrong with the node and the pods on it.
func (n *nodeState) problems() iter.Seq[problem] {
	return func(yield func(problem) bool) {
		if n.setAside != nil && !yield(*n.setAside) {
			return
		}
		for _, list := range [][]problem{n.blocking, n.edited, n.unplaced} {
			for _, p := range list {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// uid tells a node from one that is registered under the same name later.
func (n *nodeState) uid() types.UID {
	if n.node == nil {
		return ""
	}
	return n.node.UID
}

// unchanged reports whether the snapshot shows what the state was made from.
// It is asked for every node at every session, so it compares identities only.
func (n *nodeState) unchanged(info *api.NodeInfo, s *Settings) bool {
	if n == nil || n.node != info.Node || n.settings != s {
		return false
	}
	if n.inventory == nil {
		return true // nobody's devices to keep account of
	}
	if len(n.tasks) != len(info.Tasks) {
		return false
	}
	for key, t := range info.Tasks {
		if n.tasks[key] != t.Pod {
			return false
		}
	}
	return true
}

// readNode makes the state of a node from a snapshot. prev is what was known of
// the node, or nil; what did not change is taken over from it. It reads the states of
// pods and changes nothing, so it is safe to run for many nodes at once.
func readNode(prev *nodeState, info *api.NodeInfo, s *Settings, known *podStates) *nodeState {
	n := &nodeState{name: info.Name, settings: s, node: info.Node}
	if info.Node == nil {
		return n
	}
	n.readInventory(prev)
	if n.inventory == nil {
		n.unusable = "the node publishes no devices"
		if n.setAside != nil {
			n.unusable = "the inventory of the node's devices cannot be read"
		}
		return n
	}
	n.unusable, n.only = unusable(info.Node, s.Names.Number), onlyMode(n.inventory)
	n.tasks = make(map[api.TaskID]*corev1.Pod, len(info.Tasks))
	n.holdings = make(map[*corev1.Pod]holding, len(info.Tasks))
	n.ledger = sharing.NewLedger(n.inventory)
	n.empty = place.Summarize(n.ledger.Views())
	for owner, p := range known.underwayTo(n.name) {
		n.ledger.Record(owner, p)
	}
	for key, t := range info.Tasks {
		n.tasks[key] = t.Pod
		if state := known.state(ownerOf(t.Pod)); state.FirstOn(n.name) || mayHold(t.Pod, s) {
			n.hold(prev, t.Pod, state)
		}
	}
	return n
}

// readInventory reads what devices the node publishes.
func (n *nodeState) readInventory(prev *nodeState) {
	if prev != nil && prev.settings == n.settings && prev.node != nil && sameInventory(prev.node, n.node) {
		n.inventory, n.setAside = prev.inventory, prev.setAside
		return
	}
	inv, found, err := wire.ReadNode(n.node.Annotations, n.name, n.settings.Factor)
	switch {
	case err != nil:
		n.setAside = &problem{
			object:  nodeReference(n.node),
			reason:  "DeviceInventoryUnreadable",
			message: fmt.Sprintf("the devices of the node are not used: read its inventory: %v", err),
		}
	case found:
		n.inventory = &inv
	}
}

// hold records the devices of one pod.
func (n *nodeState) hold(prev *nodeState, pod *corev1.Pod, state podstate.State) {
	h, unchanged := n.known(prev, pod)
	if !unchanged {
		h = n.read(pod, state)
	}
	if state.Decision() == nil {
		n.holdings[pod] = h
	}
	switch {
	case h.placement != nil:
		n.ledger.Record(sharing.Owner(pod.UID), *h.placement)
	case h.unreadable != nil:
		n.ledger.Block(sharing.Owner(pod.UID))
		n.blocking = append(n.blocking, problem{
			object:  podReference(pod),
			reason:  "DevicePlacementUnreadable",
			message: fmt.Sprintf("every device of node %s counts as taken: %v", n.name, h.unreadable),
		})
	case h.unplaced:
		n.unplaced = append(n.unplaced, problem{
			object: podReference(pod),
			reason: "DevicePlacementMissing",
			message: fmt.Sprintf("the pod asks for devices and was bound to node %s by scheduler %q without a placement: its containers cannot start, "+
				"and it counts as holding nothing; make it anew with the scheduler that runs deviceshare", n.name, pod.Spec.SchedulerName),
		})
	}
	if h.edited {
		n.edited = append(n.edited, problem{
			object: podReference(pod),
			reason: "DevicePlacementEdited",
			message: fmt.Sprintf("the annotations by which the pod holds devices of node %s were changed after it was bound: "+
				"it counts as holding what it was bound with", n.name),
		})
	}
}

// known returns what was read from this pod object before. A decision is not read from
// the pod, so what rests on one is not kept.
func (n *nodeState) known(prev *nodeState, pod *corev1.Pod) (holding, bool) {
	if prev == nil || prev.inventory != n.inventory || prev.settings != n.settings {
		return holding{}, false
	}
	h, ok := prev.holdings[pod]
	return h, ok
}

// unusable says why a node takes no pods with devices. A node whose device
// plugin has gone away keeps its annotations; what it offers drops to zero.
func unusable(node *corev1.Node, number string) string {
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Type != corev1.NodeReady || c.Status != corev1.ConditionTrue {
			continue
		}
		offered := node.Status.Allocatable[corev1.ResourceName(number)]
		if offered.Sign() <= 0 {
			return "the node offers no " + number + ": its device plugin is not running"
		}
		return ""
	}
	return "the node is not ready"
}

func sameInventory(a, b *corev1.Node) bool {
	return a.Name == b.Name &&
		a.Annotations[wire.NodeInventory] == b.Annotations[wire.NodeInventory] &&
		a.Annotations[wire.NodeRegister] == b.Annotations[wire.NodeRegister]
}

func nodeReference(n *corev1.Node) corev1.ObjectReference {
	// Events on nodes carry the name as UID: that is what the kubelet writes and
	// kubectl looks for.
	return corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: n.Name, UID: types.UID(n.Name)}
}

func podReference(p *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}
