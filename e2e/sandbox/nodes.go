// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox/fakenode"
)

// PlainNode is the i-th simulated node when Options.SimulatedNode is nil: 64 CPUs, 256 GiB, no
// devices.
func PlainNode(i int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("simulated-%d", i)},
		Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourcePods: resource.MustParse("250"),
		}},
	}
}

// startNodes creates the simulated nodes and keeps them alive until Stop.
func (c *Cluster) startNodes(ctx context.Context) error {
	if c.opts.SimulatedNodes == 0 {
		return nil
	}
	node := c.opts.SimulatedNode
	if node == nil {
		node = PlainNode
	}
	var nodes []*corev1.Node
	for i := range c.opts.SimulatedNodes {
		nodes = append(nodes, node(i))
	}
	keeper, err := fakenode.Create(ctx, c.client, nodes)
	if err != nil {
		return err
	}
	// The nodes live longer than the call that starts them.
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.stopNodes, c.nodesDone = cancel, make(chan struct{})
	go func() {
		defer close(c.nodesDone)
		keeper.Run(run)
	}()
	return keeper.WaitReady(ctx)
}
