// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// vgpuNumber is the resource whose appearance on the node shows that the device plugin works.
const vgpuNumber corev1.ResourceName = "volcano.sh/vgpu-number"

// askAPI asks the apiserver for a path of its own.
func (c *Cluster) askAPI(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		return err
	}
}

// askNode is satisfied when the real node takes pods.
func (c *Cluster) askNode(ctx context.Context) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return nodeReady(node)
}

// nodeReady says why a node takes no pods, or nil.
func nodeReady(node *corev1.Node) error {
	for _, t := range node.Spec.Taints {
		return fmt.Errorf("node %s has the taint %s", node.Name, t.Key)
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
			return nil
		}
		if cond.Type == corev1.NodeReady {
			return fmt.Errorf("node %s is not ready: %s", node.Name, cond.Message)
		}
	}
	return fmt.Errorf("node %s does not say whether it is ready", node.Name)
}

// askGPUs is satisfied when the device plugin serves and the node offers shares of GPUs.
func (c *Cluster) askGPUs(ctx context.Context) error {
	if err := askHTTP("https", c.ports.DevicePluginMetrics, "/healthz")(ctx); err != nil {
		return err
	}
	return c.askOffer(ctx)
}

// askOffer is satisfied when the node offers shares of GPUs, as far as it has any.
func (c *Cluster) askOffer(ctx context.Context) error {
	if countGPUs(c.opts.Topology) == 0 {
		return nil
	}
	node, err := c.client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if n := node.Status.Allocatable[vgpuNumber]; n.IsZero() {
		return fmt.Errorf("node %s offers no %s", NodeName, vgpuNumber)
	}
	return nil
}

// webhookConfiguration is the name of the webhook's registration.
const webhookConfiguration = "deviceshare"

// askRegistered is satisfied when the API server knows how to trust the webhook. The webhook fails
// open, so a pod created before that would pass it by.
func (c *Cluster) askRegistered(ctx context.Context) error {
	config, err := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookConfiguration, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, w := range config.Webhooks {
		if len(w.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("webhook %s has no authority yet", w.Name)
		}
	}
	return nil
}

// queues is the resource of Volcano's queues.
var queues = schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "queues"}

// askQueue is satisfied when Volcano's default queue, which the scheduler creates, is open.
func (c *Cluster) askQueue(ctx context.Context) error {
	q, err := c.dynamic.Resource(queues).Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if state, _, _ := unstructured.NestedString(q.Object, "status", "state"); state != "Open" {
		return fmt.Errorf("queue default is %q, not open", state)
	}
	return nil
}

// waitServiceAccount waits until pods can be created in the default namespace.
func (c *Cluster) waitServiceAccount(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, pollEvery, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the default service account: %w\n%s", err, logTail(c.layout.log(ControllerManager)))
	}
	return nil
}

// tryOverlay tries whether overlayfs works below the state directory; inside most containers it
// does not.
func tryOverlay(l layout) error {
	dir := l.in("overlay-probe")
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return fmt.Errorf("try overlayfs: %w", err)
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	merged := filepath.Join(dir, "merged")
	if err := syscall.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("try overlayfs: %w", err)
	}
	return errors.Join(syscall.Unmount(merged, 0), os.RemoveAll(dir))
}
