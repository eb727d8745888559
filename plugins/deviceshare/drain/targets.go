// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing/events"
	"deviceshare/sharing/upgrade"
)

// target is what has to be emptied, with what is said of it.
type target struct {
	node    *corev1.Node
	decided nodes.Leaving
	// why is told to the pods, by this event.
	why, event string
	// heldUp begins the event of the node about pods that stay, heldUpEvent is its reason.
	heldUp, heldUpEvent string
}

// targetOf is the target of a device that is drained.
func targetOf(d *nodes.DrainedDevice) target {
	t := target{
		node: d.Node, decided: nodes.DecideLeaving(d.Holders, ""), event: events.DeviceDrained, heldUpEvent: events.GPUDrainHeldUp,
		why:    fmt.Sprintf("device %d of node %s, of which this pod has a share, is drained", d.Index, d.Node.Name),
		heldUp: fmt.Sprintf("device %d (%s) of this node is not drained before these pods have left", d.Index, d.ID),
	}
	if d.Cordon.By != "" {
		t.why += " by " + d.Cordon.By
	}
	if d.Cordon.Reason != "" {
		t.why += ": " + d.Cordon.Reason
	}
	for _, pod := range d.Unknown {
		t.decided.Stay = append(t.decided.Stay, nodes.Staying{Pod: pod, Why: nodes.UnknownHolder})
	}
	return t
}

// upgradeTargets are the nodes that have to be emptied because their drivers are replaced. holds
// reports whether a pod has devices.
func upgradeTargets(from informers.SharedInformerFactory, holds func(*corev1.Pod) bool) (map[string]target, error) {
	toEmpty, err := nodesToEmpty(from)
	if err != nil || len(toEmpty) == 0 {
		return nil, err
	}
	holders, err := holdersOn(from, toEmpty, holds)
	if err != nil {
		return nil, err
	}
	targets := map[string]target{}
	for name, n := range toEmpty {
		targets[name] = target{
			node: n, decided: nodes.DecideLeaving(holders[name], upgrade.SkipLabel), event: events.DriverUpgrade, heldUpEvent: events.GPUDriverUpgradeHeldUp,
			why:    fmt.Sprintf("NVIDIA's GPU operator replaces the driver of node %s, of which this pod holds devices", name),
			heldUp: "the driver of this node cannot be replaced before these pods have left",
		}
	}
	return targets, nil
}

// Empties reports whether the pods that hold devices of a node have to leave it now: the operator
// waits for that, and has closed the node to others.
func Empties(n *corev1.Node) bool {
	return n.Spec.Unschedulable && upgrade.PhaseOf(n.Labels) == upgrade.Emptying
}

// nodesToEmpty are the nodes that have to be emptied now.
func nodesToEmpty(from informers.SharedInformerFactory) (toEmpty map[string]*corev1.Node, err error) {
	all, err := from.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes whose drivers may be replaced: %w", err)
	}
	toEmpty = map[string]*corev1.Node{}
	for _, n := range all {
		if Empties(n) {
			toEmpty[n.Name] = n
		}
	}
	return toEmpty, nil
}

// holdersOn are the pods on some nodes that have devices, by the node.
func holdersOn(from informers.SharedInformerFactory, on map[string]*corev1.Node, holds func(*corev1.Pod) bool) (map[string][]*corev1.Pod, error) {
	pods, err := from.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods with devices of nodes whose drivers are replaced: %w", err)
	}
	holders := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		if name := pod.Spec.NodeName; on[name] != nil && holds(pod) {
			holders[name] = append(holders[name], pod)
		}
	}
	return holders, nil
}
