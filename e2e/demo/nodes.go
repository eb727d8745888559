// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// simulated marks the nodes without a kubelet. They carry it as a taint, so that
// only pods that do not have to run come to them.
const simulated = "demo.deviceshare/simulated"

// Options are what the demo's cluster consists of, beside what the caller sets:
// the real node, and two simulated ones with two devices each.
func Options(o sandbox.Options) (sandbox.Options, error) {
	var nodes []*corev1.Node
	for i := range 2 {
		node, err := simulatedNode(i)
		if err != nil {
			return o, err
		}
		nodes = append(nodes, node)
	}
	o.Topology = Topology
	o.SimulatedNodes, o.SimulatedNode = len(nodes), func(i int) *corev1.Node { return nodes[i] }
	return o, nil
}

func simulatedNode(i int) (*corev1.Node, error) {
	inv := sharing.Inventory{Node: fmt.Sprintf("simulated-%d", i)}
	for d := range 2 {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-51a0%04d-0000-0000-0000-00000000000%d", i, d)), Index: d, Model: "NVIDIA L40S",
			Memory: 45 * sharing.GiB, Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
		})
	}
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		return nil, fmt.Errorf("inventory of node %s: %w", inv.Node, err)
	}
	node := sandbox.PlainNode(i)
	node.Name, node.Annotations = inv.Node, annotations
	node.Labels = map[string]string{simulated: "true"}
	node.Spec.Taints = []corev1.Taint{{Key: simulated, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	for name, n := range map[corev1.ResourceName]int64{workload.Number: 20, workload.Memory: 2 * 45 * 1024, workload.Cores: 200} {
		node.Status.Capacity[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return node, nil
}

// onSimulated lets a pod run on simulated nodes only.
func onSimulated(p *corev1.Pod) {
	p.Spec.NodeSelector = map[string]string{simulated: "true"}
	p.Spec.Tolerations = []corev1.Toleration{{Key: simulated, Operator: corev1.TolerationOpExists}}
}

// nodes places pods that choose differently among nodes.
func (s *story) nodes(ctx context.Context) error {
	var chosen []string
	for _, p := range []struct{ name, policy string }{{"first", "binpack"}, {"near", "binpack"}, {"far", "spread"}} {
		made := pod(p.name).App("main", workload.Ask{Number: 1, Memory: 10240}, "forever").
			Annotate(wire.UserPolicy, p.policy).Edit(onSimulated)
		if err := s.run(ctx, made); err != nil {
			return err
		}
		got, err := s.user.Get(ctx, p.name)
		if err != nil {
			return err
		}
		placement, err := user.Placement(got)
		if err != nil {
			return err
		}
		chosen = append(chosen, placement.Node)
	}
	for i := range 2 {
		if err := s.drawNode(ctx, fmt.Sprintf("simulated-%d", i)); err != nil {
			return err
		}
	}
	if chosen[0] != chosen[1] || chosen[0] == chosen[2] {
		return fmt.Errorf("first, near and far are on %v: near must be beside first, far must not", chosen)
	}
	return s.user.Delete(ctx, "first", "near", "far")
}

// draw shows the real node, drawNode any, as the API server knows it.
func (s *story) draw(ctx context.Context) error { return s.drawNode(ctx, sandbox.NodeName) }

func (s *story) node(ctx context.Context, name string) (sharing.Inventory, error) {
	node, err := s.cluster.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return sharing.Inventory{}, fmt.Errorf("read node %s: %w", name, err)
	}
	inv, err := wire.DecodeInventory(node.Annotations[wire.NodeInventory])
	if err != nil {
		return inv, fmt.Errorf("inventory of node %s: %w", name, err)
	}
	return inv, nil
}
