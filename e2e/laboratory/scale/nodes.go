// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

const (
	devicesPerNode = 8
	deviceMemory   = 16384 // MiB
	sharesOfDevice = 10
)

// withoutLeases are the flags of a controller manager that takes nodes for alive which never say
// so. Five thousand leases that are renewed would be much of what is measured.
func withoutLeases() []string {
	return []string{"--node-monitor-grace-period=24h", "--node-monitor-period=1m", "--controllers=-ttl-controller"}
}

// node is the i-th node: 8 devices, as a device plugin publishes them.
func node(i int) (*corev1.Node, error) {
	name := fmt.Sprintf("n%05d", i)
	inv := sharing.Inventory{Node: name}
	for d := range devicesPerNode {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", name, d)), Index: d, Model: "NVIDIA A100-SXM4-80GB", Memory: sharing.MiBs(deviceMemory),
			Cores: 100, MaxShares: sharesOfDevice, Healthy: true, Mode: sharing.HAMiCore, NUMA: d * 2 / devicesPerNode,
		})
	}
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		return nil, fmt.Errorf("describe the devices of node %s: %w", name, err)
	}
	amount := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
	offers := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: amount(250),
		wire.ResourceNumber: amount(devicesPerNode * sharesOfDevice), wire.ResourceMemory: amount(devicesPerNode * deviceMemory),
		wire.ResourceCores: amount(devicesPerNode * 100),
	}
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Capacity: offers, Allocatable: offers, Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: now, LastTransitionTime: now}}},
	}, nil
}

// writers is how many requests of this program are under way at a time.
const writers = 16

// createNodes creates the nodes and waits until pods may be placed on all of them.
func createNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	var g errgroup.Group
	g.SetLimit(writers)
	for i := range n {
		g.Go(func() error {
			made, err := node(i)
			if err != nil {
				return err
			}
			if _, err := client.CoreV1().Nodes().Create(ctx, made, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create node %s: %w", made.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 2*time.Second, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = requireOpen(ctx, client, n)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until pods may be placed on the nodes: %w: %w", err, last)
	}
	return nil
}

// requireOpen returns an error if a node still has the taint that new nodes get.
func requireOpen(ctx context.Context, client kubernetes.Interface, n int) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	if len(list.Items) != n {
		return fmt.Errorf("%d of %d nodes are there", len(list.Items), n)
	}
	for i := range list.Items {
		if len(list.Items[i].Spec.Taints) > 0 {
			return fmt.Errorf("node %s has the taint %s", list.Items[i].Name, list.Items[i].Spec.Taints[0].Key)
		}
	}
	return nil
}
