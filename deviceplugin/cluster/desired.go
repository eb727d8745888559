// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// DesiredNode is what the node should say.
type DesiredNode struct {
	Annotations map[string]string
	// Capacity maps resource names to amounts.
	Capacity map[string]int64
}

// NodeState is what is true of the node.
type NodeState struct {
	// Inventory is the devices as they are offered, broken ones among them.
	Inventory sharing.Inventory
	// Config is the configuration in force.
	Config wire.ConfigVersions
	// Names are the resources' names, and Factor is the MiB per unit of memory, at
	// least 1.
	Names  podspec.Names
	Factor int64
	// AmountsInStatus reports whether memory and cores belong into the node's status. They are
	// what the kubelet is told that the node has: see node.State.Offered.
	AmountsInStatus bool
	Memory, Cores   int64
	// Withdrawn reports that the plugin is being uninstalled and has taken back what it can.
	Withdrawn bool
}

// Desired computes what the node should say. Its capacity is nil where memory and
// cores do not belong into the node's status.
func Desired(s NodeState) (DesiredNode, error) {
	inv := s.Inventory
	annotations, err := wire.NodeAnnotations(inv, s.Factor)
	if err != nil {
		return DesiredNode{}, fmt.Errorf("write the inventory of node %s down: %w", inv.Node, err)
	}
	if annotations[wire.NodeConfig], err = wire.EncodeConfig(s.Config); err != nil {
		return DesiredNode{}, fmt.Errorf("write the configuration of node %s down: %w", inv.Node, err)
	}
	if !s.AmountsInStatus {
		return DesiredNode{Annotations: annotations}, nil
	}
	want := DesiredNode{Annotations: annotations, Capacity: map[string]int64{}}
	if s.Names.Memory != "" {
		want.Capacity[s.Names.Memory] = s.Memory
	}
	if s.Names.Cores != "" {
		want.Capacity[s.Names.Cores] = s.Cores
	}
	return want, nil
}

// annotationPatch is the annotations of the node that must change; nil when none
// must. The sign of life is renewed when it is due and with every other change; a nil
// value removes.
func annotationPatch(node *corev1.Node, want DesiredNode, now string, signIsDue bool) map[string]any {
	patch := map[string]any{}
	for key, value := range want.Annotations {
		if node.Annotations[key] != value {
			patch[key] = value
		}
	}
	if len(patch) == 0 && !signIsDue {
		return nil
	}
	key, alive := wire.HandshakeAnnotation(now)
	patch[key] = alive
	return map[string]any{"metadata": map[string]any{"annotations": patch}}
}

// signOfLife says whether the node's sign of life is due, and if not, when it will be; 0 is
// never, as long as nobody overwrites it. written is when it was written last.
//
// Legacy schedulers overwrite each sign with an answer, and forget the devices when that
// has stood for a minute. To answer that at once would make it an endless exchange, as fast
// as the API server is, of every node with the scheduler. A scheduler that has forgotten
// the devices writes nothing more.
func signOfLife(node *corev1.Node, written, now time.Time) (isDue bool, wait time.Duration) {
	key, alive := wire.HandshakeAnnotation("")
	value, found := node.Annotations[key]
	if strings.HasPrefix(value, alive) {
		return false, 0
	}
	if age := now.Sub(written); found && !strings.HasPrefix(value, signGone) && age >= 0 && age < signEvery {
		return false, signEvery - age
	}
	return true, 0
}

// signEvery is how often a sign of life that was answered is renewed.
const signEvery = 20 * time.Second

// signGone begins the answer of a legacy scheduler that has forgotten the devices.
const signGone = "Deleted"

// capacityPatch is the capacities that must change; nil when none must. stale are
// names that were published before and are ours no longer.
func capacityPatch(node *corev1.Node, want DesiredNode, stale []string) map[string]any {
	patch := map[string]any{}
	for name, amount := range want.Capacity {
		q, ok := node.Status.Capacity[corev1.ResourceName(name)]
		if !ok || q.Value() != amount {
			patch[name] = strconv.FormatInt(amount, 10)
		}
	}
	for _, name := range stale {
		if _, ok := node.Status.Capacity[corev1.ResourceName(name)]; ok {
			patch[name] = nil
		}
	}
	if len(patch) == 0 {
		return nil
	}
	return map[string]any{"status": map[string]any{"capacity": patch}}
}
