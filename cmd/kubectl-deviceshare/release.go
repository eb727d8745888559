// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"deviceshare/sharing/wire"
)

// releaser is one call of the command release.
type releaser struct {
	*options
	duration time.Duration
	end      bool
	// period is the wait between two looks at the node.
	period time.Duration
}

func (o *options) releaseCommand() *cobra.Command {
	r := &releaser{options: o, period: watchPeriod}
	c := &cobra.Command{
		Use: "release NODE", Short: "Have the device plugin of a node let go of the driver, so that it can be replaced",
		Args: cobra.ExactArgs(1), ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.findMistakes(c.Flags().Changed("for")); err != nil {
				return err
			}
			_, core, err := o.connectToCluster()
			if err != nil {
				return err
			}
			if r.end {
				return r.endRelease(c.Context(), core, args[0])
			}
			return r.releaseDriver(c.Context(), core, args[0])
		},
	}
	c.Flags().DurationVar(&r.duration, "for", time.Hour, "for how long at most, up to 24h")
	c.Flags().BoolVar(&r.end, "end", false, "use the driver again")
	return c
}

const longestRelease = wire.LongestReleaseSeconds * time.Second

// findMistakes returns all mistakes of the command line.
func (r *releaser) findMistakes(isTimeGiven bool) error {
	var mistakes []error
	if r.duration < time.Second || r.duration > longestRelease {
		mistakes = append(mistakes, fmt.Errorf("--for %s: want a time from 1s to 24h", r.duration))
	}
	if r.end && isTimeGiven {
		mistakes = append(mistakes, errors.New("--for does not go with --end"))
	}
	if r.from != "" {
		mistakes = append(mistakes, errors.New("--from reads a file, and release changes a cluster: use one of them"))
	}
	if r.watch {
		mistakes = append(mistakes, errors.New("--watch does not go with release"))
	}
	return errors.Join(mistakes...)
}

// releaseDriver says on the node that the driver is to be let go, and returns when it is.
func (r *releaser) releaseDriver(ctx context.Context, core kubernetes.Interface, name string) error {
	until := time.Now().Add(r.duration).UTC().Format(time.RFC3339)
	n, err := markNode(ctx, core, name, until)
	if err != nil {
		return err
	}
	if _, isOurs := n.Annotations[wire.NodeInventory]; !isOurs {
		_, err := markNode(ctx, core, name, nil)
		return errors.Join(fmt.Errorf("node %s publishes no devices: does the device plugin run there?", name), err)
	}
	r.tellPeople(fmt.Sprintf("node %s takes no new pods with devices until %s", name, until))
	for last := ""; ; {
		isReleased, obstacle, err := readRelease(ctx, core, name)
		if err != nil {
			return err
		}
		if isReleased {
			break
		}
		if obstacle != last {
			r.tellPeople(obstacle)
			last = obstacle
		}
		if err := sleepContext(ctx, r.period); err != nil {
			return fmt.Errorf("wait until the driver of node %s is released: %w; take it back with: kubectl deviceshare release %s --end", name, err, name)
		}
	}
	_, err = fmt.Fprintf(r.streams.Out, "The device plugin of node %s does not use the driver. %s\nWhen it is replaced: kubectl deviceshare release %s --end\n",
		name, describeHolders(ctx, core, name), name)
	return err
}

// endRelease has the driver used again.
func (r *releaser) endRelease(ctx context.Context, core kubernetes.Interface, name string) error {
	if _, err := markNode(ctx, core, name, nil); err != nil {
		return err
	}
	_, err := fmt.Fprintf(r.streams.Out, "The device plugin of node %s uses the driver again.\n", name)
	return err
}

// markNode writes until when the driver of a node is to be let go; nil removes that.
func markNode(ctx context.Context, core kubernetes.Interface, name string, until any) (*corev1.Node, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{wire.NodeReleaseDriver: until}}})
	if err != nil {
		return nil, fmt.Errorf("write the annotation: %w", err)
	}
	n, err := core.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-deviceshare"})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no node %s: see kubectl get nodes", name)
	case err != nil:
		return nil, fmt.Errorf("annotate node %s: %w", name, err)
	}
	return n, nil
}

// readRelease reports whether the device plugin of a node says that it does not use the driver, and
// why it still does.
func readRelease(ctx context.Context, core kubernetes.Interface, name string) (isReleased bool, obstacle string, err error) {
	n, err := readNode(ctx, core, name)
	if err != nil {
		return false, "", err
	}
	if _, marked := n.Annotations[wire.NodeReleaseDriver]; !marked {
		return false, "", fmt.Errorf("somebody has ended the release of node %s", name)
	}
	inv, _, err := wire.ReadNode(n.Annotations, name, 1)
	if err != nil {
		return false, "", fmt.Errorf("read the devices of node %s: %w", name, err)
	}
	isReleased = true
	said, obstacles := map[string]bool{wire.ReasonReleased: true, "": true}, []string(nil)
	for i := range inv.Devices {
		d := &inv.Devices[i]
		isReleased = isReleased && d.Reason == wire.ReasonReleased
		if !said[d.Reason] {
			said[d.Reason] = true
			obstacles = append(obstacles, fmt.Sprintf("device %d: %s", d.Index, d.Reason))
		}
	}
	return isReleased, cmp.Or(strings.Join(obstacles, "; "), "waiting for the device plugin"), nil
}

// describeHolders says which pods still keep the driver from being unloaded.
func describeHolders(ctx context.Context, core kubernetes.Interface, node string) string {
	pods, err := core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return fmt.Sprintf("Which pods do could not be read: %v.", err)
	}
	var names []string
	for i := range pods.Items {
		p := &pods.Items[i]
		if _, holds := p.Annotations[wire.PodPlacement]; holds && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	if len(names) == 0 {
		return "No pod with devices runs there."
	}
	return fmt.Sprintf("%d pods with devices still run there, and have to leave first: %s", len(names), strings.Join(names, ", "))
}
