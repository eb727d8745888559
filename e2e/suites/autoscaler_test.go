// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"

	"deviceshare/e2e/sandbox/fakenode"
	"deviceshare/sharing/wire"
)

// autoscaler acts as Cluster Autoscaler does with one group of nodes: it looks for pods that are
// unschedulable, lets Kubernetes' own predicate of sums say where they fit, on nodes that are there
// or come, and orders nodes for the others. It knows a node by what one of the group is like while
// the node offers no devices, as it does for nodes with the cloud's label of GPUs.
type autoscaler struct {
	client kubernetes.Interface
	label  string
	like   func(i int) *corev1.Node
	// ordered is how many nodes were ordered, made how many there are of these.
	ordered, made int
	// quiet is for how many scans nothing was ordered.
	quiet int
	keep  []func()
}

// removeNodes ends the nodes of the group. None comes any more that was ordered before.
func (a *autoscaler) removeNodes(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, stop := range a.keep {
		stop()
	}
	for i := range a.made {
		if err := a.client.CoreV1().Nodes().Delete(ctx, a.like(i).Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	a.keep, a.ordered, a.made, a.quiet = nil, 0, 0, 0
}

// scan orders nodes for pods that seem to fit nowhere, and makes one of those that were ordered.
func (a *autoscaler) scan(ctx context.Context) error {
	nodes, err := a.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: a.label})
	if err != nil {
		return err
	}
	pods, err := a.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var infos []*framework.NodeInfo
	for i := range nodes.Items {
		infos = append(infos, a.see(&nodes.Items[i], pods.Items))
	}
	for i := len(nodes.Items); i < a.ordered; i++ {
		infos = append(infos, a.see(a.like(i), nil))
	}
	before := a.ordered
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !a.looksAt(pod) || slices.ContainsFunc(infos, func(n *framework.NodeInfo) bool { return putIfFits(pod, n) }) {
			continue
		}
		if n := a.see(a.like(a.ordered), nil); putIfFits(pod, n) {
			infos = append(infos, n)
			a.ordered++
		}
	}
	if a.quiet++; a.ordered > before {
		a.quiet = 0
	}
	return a.makeNode(ctx)
}

// looksAt reports whether a pod waits for a node.
func (a *autoscaler) looksAt(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// see is a node with its pods; what it offers is taken from the group until it offers devices.
func (a *autoscaler) see(node *corev1.Node, pods []corev1.Pod) *framework.NodeInfo {
	if slots := node.Status.Allocatable[wire.ResourceNumber]; slots.IsZero() {
		node = node.DeepCopy()
		node.Status.Allocatable = a.like(0).Status.Capacity
	}
	n := framework.NewNodeInfo()
	n.SetNode(node)
	for i := range pods {
		if pods[i].Spec.NodeName == node.Name && pods[i].Status.Phase != corev1.PodSucceeded && pods[i].Status.Phase != corev1.PodFailed {
			n.AddPod(&pods[i])
		}
	}
	return n
}

// putIfFits puts a pod on a node where it fits by sums, selectors and taints.
func putIfFits(pod *corev1.Pod, n *framework.NodeInfo) bool {
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.Node()); err != nil || !match {
		return false
	}
	hard := func(t *corev1.Taint) bool { return t.Key == onlyAutoscale }
	if _, untolerated := v1helper.FindMatchingUntoleratedTaint(n.Node().Spec.Taints, pod.Spec.Tolerations, hard); untolerated {
		return false
	}
	if len(noderesources.Fits(pod, n, noderesources.ResourceRequestsOptions{})) > 0 {
		return false
	}
	n.AddPod(pod)
	return true
}

// makeNode makes a node that was ordered, if there is one. Its device plugin comes up later.
func (a *autoscaler) makeNode(ctx context.Context) error {
	if a.made == a.ordered {
		return nil
	}
	complete := a.like(a.made)
	bare := complete.DeepCopy()
	bare.Annotations = nil
	for _, name := range []corev1.ResourceName{wire.ResourceNumber, wire.ResourceMemory, wire.ResourceCores} {
		delete(bare.Status.Capacity, name)
	}
	keeper, err := fakenode.Create(ctx, a.client, []*corev1.Node{bare})
	if err != nil {
		return err
	}
	a.made++
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); keeper.Run(run) }()
	a.keep = append(a.keep, func() { stop(); <-done })
	return offerDevices(ctx, a.client, complete, 2*time.Second)
}

// offerDevices does what a device plugin does when it has come up, some time after its node.
func offerDevices(ctx context.Context, client kubernetes.Interface, complete *corev1.Node, later time.Duration) error {
	sleep(ctx, later)
	annotations := map[string]any{"metadata": map[string]any{"annotations": complete.Annotations}}
	amounts := map[string]any{"status": map[string]any{"capacity": complete.Status.Capacity, "allocatable": complete.Status.Capacity}}
	for subresource, change := range map[string]any{"": annotations, "status": amounts} {
		patch, err := json.Marshal(change)
		if err != nil {
			return err
		}
		if _, err := client.CoreV1().Nodes().Patch(ctx, complete.Name, types.MergePatchType, patch, metav1.PatchOptions{}, strings.Fields(subresource)...); err != nil {
			return fmt.Errorf("offer the devices of a new node: %w", err)
		}
	}
	return nil
}
