// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/sharing/wire"
)

// Withdrawal takes off the API server what device plugins wrote about their nodes, when
// all of them are uninstalled. It is meant to run once, beside the plugins and not in one.
type Withdrawal struct {
	Client kubernetes.Interface
	// Namespace and DaemonSet name the plugins' workload.
	Namespace, DaemonSet string
	// Patience bounds each of the two waits, for the plugins to take their devices back and
	// for their end.
	Patience time.Duration
}

// Run has every device plugin take its devices back, deletes the DaemonSet, waits for the end
// of its pods, since a plugin that runs would write everything again, and then clears every
// node. It may be repeated. Plugins and pods that do not do so in time are told in the log
// only: their nodes may be down.
func (w Withdrawal) Run(ctx context.Context) error {
	names, err := w.amountNames(ctx)
	if err != nil {
		return err
	}
	if err := w.awaitDevices(ctx); err != nil {
		return err
	}
	err = w.Client.AppsV1().DaemonSets(w.Namespace).Delete(ctx, w.DaemonSet, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete DaemonSet %s/%s: %w", w.Namespace, w.DaemonSet, err)
	}
	if err := w.awaitEnd(ctx); err != nil {
		return err
	}
	return w.clearNodes(ctx, names)
}

// amountNames are the resources under which memory and cores are in the capacity of nodes:
// those of the configuration, or the defaults where it cannot be understood.
func (w Withdrawal) amountNames(ctx context.Context) ([]string, error) {
	following, stop := context.WithCancel(ctx)
	defer stop()
	watcher := live.New(live.Options{Client: w.Client})
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(following) }()
	if err := watcher.Wait(ctx); err != nil {
		return nil, fmt.Errorf("read the names of the resources: %w", err)
	}
	device := watcher.Current().Device
	stop()
	if err := <-ended; err != nil {
		return nil, fmt.Errorf("read the names of the resources: %w", err)
	}
	defaults := config.DefaultDevice().Names()
	return slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values([]string{
		device.Names().Memory, device.Names().Cores, defaults.Memory, defaults.Cores,
	}))), func(name string) bool { return name == "" }), nil
}

// withdrawFor is how long a plugin heeds that it is to withdraw: one that starts later, since
// the uninstallation failed half way, offers its devices as usual.
const withdrawFor = 10 * time.Minute

// isToWithdraw reports whether the node says that its plugin is being uninstalled.
func isToWithdraw(node *corev1.Node, now time.Time) bool {
	return markedFor(node, wire.NodeWithdraw, withdrawFor, now) > 0
}

// awaitDevices tells the plugins to take their devices back, and returns when all have, which
// they say by removing their inventory, or when patience is over.
func (w Withdrawal) awaitDevices(ctx context.Context) error {
	until := time.Now().Add(withdrawFor).UTC().Format(time.RFC3339)
	mark, err := json.Marshal(wrapAnnotations(map[string]any{wire.NodeWithdraw: until}))
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	told := map[string]bool{}
	return w.pollUntilEmpty(ctx, "device plugins take their devices back", func(ctx context.Context) (left []string, err error) {
		nodes, err := w.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		for i := range nodes.Items {
			n := &nodes.Items[i]
			if _, ours := n.Annotations[wire.NodeInventory]; !ours {
				continue
			}
			left = append(left, n.Name)
			if told[n.Name] {
				continue
			}
			if _, err := w.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, mark, metav1.PatchOptions{}); err != nil {
				return nil, fmt.Errorf("annotate node %s: %w", n.Name, err)
			}
			told[n.Name] = true
		}
		return left, nil
	})
}

// awaitEnd returns when no pod of the DaemonSet is left, or when patience is over.
func (w Withdrawal) awaitEnd(ctx context.Context) error {
	return w.pollUntilEmpty(ctx, "device plugins end", func(ctx context.Context) (left []string, err error) {
		pods, err := w.Client.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list the device plugins: %w", err)
		}
		for i := range pods.Items {
			if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil && owner.Kind == "DaemonSet" && owner.Name == w.DaemonSet {
				left = append(left, pods.Items[i].Spec.NodeName)
			}
		}
		return left, nil
	})
}

// pollUntilEmpty asks until nothing is left, or until patience is over: that is told only.
func (w Withdrawal) pollUntilEmpty(ctx context.Context, what string, ask func(context.Context) (left []string, err error)) error {
	var left []string
	err := wait.PollUntilContextTimeout(ctx, time.Second, w.Patience, true, func(ctx context.Context) (done bool, _ error) {
		now, err := ask(ctx)
		if err != nil {
			klog.ErrorS(err, "waiting; trying again", "until", what)
			return false, nil
		}
		left = now
		return len(left) == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
	}
	if err != nil {
		klog.InfoS("not waiting any longer", "until", what, "waited", w.Patience, "nodes", left)
	}
	return nil
}

// clearNodes clears every node that one of our plugins has published. A node that fails does
// not keep the others from being cleared.
func (w Withdrawal) clearNodes(ctx context.Context, names []string) error {
	nodes, err := w.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	var failed []error
	for i := range nodes.Items {
		_, isPublished := nodes.Items[i].Annotations[wire.NodeInventory]
		if _, isMarked := nodes.Items[i].Annotations[wire.NodeWithdraw]; !isPublished && !isMarked {
			continue
		}
		if err := w.clearNode(ctx, &nodes.Items[i], names); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// clearNode removes the annotations last: they say that a node is still to be cleared.
func (w Withdrawal) clearNode(ctx context.Context, node *corev1.Node, names []string) error {
	patch := func(what map[string]any, subresource ...string) error {
		text, err := json.Marshal(what)
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		_, err = w.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, text, metav1.PatchOptions{}, subresource...)
		return err
	}
	if err := patch(withoutAmounts(node, names), "status"); err != nil {
		return fmt.Errorf("remove memory and cores from the status of node %s: %w", node.Name, err)
	}
	if err := patch(withoutAnnotations(node, wire.NodeWithdraw, wire.NodeReleaseDriver, wire.NodeCordon)); err != nil {
		return fmt.Errorf("remove the annotations of node %s: %w", node.Name, err)
	}
	klog.InfoS("node cleared", "node", node.Name)
	return nil
}

// withoutAmounts removes memory and cores from the node's status. The number of devices is
// the kubelet's, which takes it to 0 when the plugin is gone.
func withoutAmounts(node *corev1.Node, names []string) map[string]any {
	amounts := map[string]any{}
	for _, name := range names {
		if _, ok := node.Status.Capacity[corev1.ResourceName(name)]; ok {
			amounts[name] = nil
		}
	}
	return map[string]any{"status": map[string]any{"capacity": amounts, "allocatable": amounts}}
}

// withoutAnnotations removes what Publisher writes, and the answer of legacy schedulers; nil
// when nothing of that is there. Further keys are removed too.
func withoutAnnotations(node *corev1.Node, further ...string) map[string]any {
	gone := map[string]any{}
	for _, key := range append(further, wire.NodeInventory, wire.NodeRegister, wire.NodeHandshake, wire.NodeConfig) {
		if _, ok := node.Annotations[key]; ok {
			gone[key] = nil
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return wrapAnnotations(gone)
}

func wrapAnnotations(changes map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": changes}}
}

// WithdrawCommand is the subcommand that the chart runs before it is uninstalled. kubeconfig
// is the flag of the whole program.
func WithdrawCommand(kubeconfig *string) *cobra.Command {
	w := Withdrawal{DaemonSet: "deviceshare-device-plugin", Patience: time.Minute}
	c := &cobra.Command{
		Use:   "withdraw",
		Short: "End all device plugins of the cluster and remove what they wrote about their nodes",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if w.Namespace == "" {
				return errors.New("--namespace is empty: give the namespace of the device plugins")
			}
			if w.Client, err = NewClient(*kubeconfig); err != nil {
				return fmt.Errorf("%w (--kubeconfig)", err)
			}
			return w.Run(c.Context())
		},
	}
	c.Flags().StringVar(&w.Namespace, "namespace", "", "namespace of the device plugins")
	c.Flags().StringVar(&w.DaemonSet, "daemonset", w.DaemonSet, "name of their DaemonSet, which is deleted")
	c.Flags().DurationVar(&w.Patience, "patience", w.Patience, "how long to wait for plugins to take their devices back, and then for their end: their nodes may be down")
	return c
}
