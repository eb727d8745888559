// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// cordoner is one call of the commands cordon, drain and uncordon.
type cordoner struct {
	*options
	node    string
	devices []string
	// reason and duration are told of new cordons; all takes back all of the node.
	reason   string
	duration time.Duration
	all      bool
	drains   bool
}

func (o *options) cordonCommand() *cobra.Command {
	r := &cordoner{options: o}
	c := &cobra.Command{
		Use: "cordon NODE DEVICE...", Short: "Keep new pods off devices of a node; those on them stay",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: o.completeDevices,
		RunE: func(c *cobra.Command, args []string) error {
			_, core, err := r.readCall(c, args)
			if err != nil {
				return err
			}
			closed, err := r.cordonDevices(c.Context(), core, time.Now())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(r.streams.Out, "%s new pods. In use again with: %s\n", closed.beginSentence("takes no", "take no"), closed.undoCommand())
			return err
		},
	}
	r.addCordonFlags(c)
	return c
}

func (o *options) uncordonCommand() *cobra.Command {
	r := &cordoner{options: o}
	c := &cobra.Command{
		Use: "uncordon NODE DEVICE...", Short: "Let new pods on devices of a node again",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: o.completeDevices,
		RunE: func(c *cobra.Command, args []string) error {
			_, core, err := r.readCall(c, args)
			if err != nil {
				return err
			}
			return r.uncordonDevices(c.Context(), core, time.Now())
		},
	}
	c.Flags().BoolVar(&r.all, "all", false, "all devices of the node, and those that are not there any more")
	return c
}

func (r *cordoner) addCordonFlags(c *cobra.Command) {
	c.Flags().StringVar(&r.reason, "reason", "", "why, for whoever looks")
	c.Flags().DurationVar(&r.duration, "for", 0, "for how long, such as 2h; without it, until uncordon")
}

// readCall reads the command line and connects to the cluster. It returns all mistakes.
func (r *cordoner) readCall(c *cobra.Command, args []string) (*rest.Config, kubernetes.Interface, error) {
	r.node, r.devices = args[0], args[1:]
	if err := r.findMistakes(c.Flags().Changed("for"), c.Name()); err != nil {
		return nil, nil, err
	}
	return r.connectToCluster()
}

func (r *cordoner) findMistakes(isTimeGiven bool, command string) error {
	mistakes := []error{r.validate()}
	if isTimeGiven && r.duration < time.Second {
		mistakes = append(mistakes, fmt.Errorf("--for %s: want a second or more", r.duration))
	}
	if len(r.reason) > wire.LongestCordonText || strings.ContainsFunc(r.reason, func(c rune) bool { return c < ' ' }) {
		mistakes = append(mistakes, fmt.Errorf("--reason: want one line of at most %d bytes", wire.LongestCordonText))
	}
	if r.all == (len(r.devices) > 0) && command == "uncordon" {
		mistakes = append(mistakes, errors.New("want devices, or --all"))
	}
	if r.from != "" {
		mistakes = append(mistakes, fmt.Errorf("--from reads a file, and %s changes a cluster: use one of them", command))
	}
	if r.watch {
		mistakes = append(mistakes, fmt.Errorf("--watch does not go with %s", command))
	}
	return errors.Join(mistakes...)
}

// closedDevices are the devices that a call is about, in the order of the node.
type closedDevices struct {
	node    string
	devices []sharing.Device
}

// deviceIDs are the UUIDs of the devices.
func (d *closedDevices) deviceIDs() (ids []sharing.DeviceID) {
	for i := range d.devices {
		ids = append(ids, d.devices[i].ID)
	}
	return ids
}

// listIndexes are the indexes of the devices, for a command line.
func (d *closedDevices) listIndexes() string {
	var out []string
	for i := range d.devices {
		out = append(out, strconv.Itoa(d.devices[i].Index))
	}
	return strings.Join(out, " ")
}

// beginSentence begins a sentence about the devices, with the verb for one or several.
func (d *closedDevices) beginSentence(one, several string) string {
	var names []string
	for i := range d.devices {
		names = append(names, fmt.Sprintf("%d (%s)", d.devices[i].Index, d.devices[i].ID))
	}
	if len(names) == 1 {
		return fmt.Sprintf("Device %s of node %s %s", names[0], d.node, one)
	}
	return fmt.Sprintf("Devices %s of node %s %s", strings.Join(names, ", "), d.node, several)
}

// undoCommand is the command that takes a cordon back.
func (d *closedDevices) undoCommand() string {
	return fmt.Sprintf("kubectl deviceshare uncordon %s %s", d.node, d.listIndexes())
}

// cordonDevices writes on the node that the devices take no new pods.
func (r *cordoner) cordonDevices(ctx context.Context, core kubernetes.Interface, now time.Time) (*closedDevices, error) {
	one := sharing.Cordon{Drains: r.drains, Reason: r.reason, By: whoAmI(ctx, core), Since: timeText(now)}
	if r.duration > 0 {
		one.Until = timeText(now.Add(r.duration))
	}
	closed := &closedDevices{node: r.node}
	err := r.editCordons(ctx, core, func(n *corev1.Node, known sharing.Cordons) (sharing.Cordons, error) {
		inv, err := devicesOf(n)
		if err != nil {
			return nil, err
		}
		if closed.devices, err = selectDevices(inv, r.devices); err != nil {
			return nil, err
		}
		next := sharing.Cordons{}
		for id, c := range known {
			if !c.IsOver(timeText(now)) {
				next[id] = c
			}
		}
		for _, id := range closed.deviceIDs() {
			next[id] = one
		}
		return next, nil
	})
	return closed, err
}

// uncordonDevices writes on the node that the devices take new pods again.
func (r *cordoner) uncordonDevices(ctx context.Context, core kubernetes.Interface, now time.Time) error {
	var opened []string
	err := r.editCordons(ctx, core, func(n *corev1.Node, known sharing.Cordons) (sharing.Cordons, error) {
		chosen, err := r.selectCordoned(n, known)
		if err != nil {
			return nil, err
		}
		next := sharing.Cordons{}
		opened = nil
		for id, c := range known {
			switch {
			case r.all, slices.Contains(chosen, id):
				opened = append(opened, string(id))
			case !c.IsOver(timeText(now)):
				next[id] = c
			}
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	slices.Sort(opened)
	text := fmt.Sprintf("Node %s takes new pods again on %s.", r.node, strings.Join(opened, ", "))
	if len(opened) == 0 {
		text = fmt.Sprintf("No such device of node %s was cordoned.", r.node)
	}
	_, err = fmt.Fprintln(r.streams.Out, text)
	return err
}

// selectCordoned returns the devices that people name, also those that are cordoned and not there
// any more.
func (r *cordoner) selectCordoned(n *corev1.Node, known sharing.Cordons) ([]sharing.DeviceID, error) {
	inv, err := devicesOf(n)
	if err != nil {
		inv = sharing.Inventory{Node: n.Name}
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if _, there := inv.Device(id); !there {
			inv.Devices = append(inv.Devices, sharing.Device{ID: id, Index: -1})
		}
	}
	chosen, err := selectDevices(inv, r.devices)
	closed := closedDevices{devices: chosen}
	return closed.deviceIDs(), err
}

// editCordons changes the cordons of the node. Others may change them at the same time.
func (r *cordoner) editCordons(ctx context.Context, core kubernetes.Interface, edit func(*corev1.Node, sharing.Cordons) (sharing.Cordons, error)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := readNode(ctx, core, r.node)
		if err != nil {
			return err
		}
		known, err := wire.ReadCordons(n.Annotations)
		if err != nil && !r.all {
			return fmt.Errorf("the cordons of node %s cannot be read: correct the annotation %s, or remove it with kubectl deviceshare uncordon %s --all: %w", r.node, wire.NodeCordon, r.node, err)
		}
		next, err := edit(n, known)
		if err != nil {
			return err
		}
		return writeCordons(ctx, core, n, next)
	})
}

// writeCordons writes the cordons of a node that nobody has changed since it was read.
func writeCordons(ctx context.Context, core kubernetes.Interface, n *corev1.Node, next sharing.Cordons) error {
	var text any // removes the annotation
	if len(next) > 0 {
		encoded, err := wire.EncodeCordons(next)
		if err != nil {
			return fmt.Errorf("write the annotation: %w", err)
		}
		text = encoded
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": n.ResourceVersion, "annotations": map[string]any{wire.NodeCordon: text},
	}})
	if err != nil {
		return fmt.Errorf("write the annotation: %w", err)
	}
	_, err = core.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-deviceshare"})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("you need the right to patch nodes: %w", err)
	}
	return err
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// devicesOf are the devices that a node publishes.
func devicesOf(n *corev1.Node) (sharing.Inventory, error) {
	inv, found, err := wire.ReadNode(n.Annotations, n.Name, 1)
	switch {
	case err != nil:
		return inv, fmt.Errorf("read the devices of node %s: %w", n.Name, err)
	case !found:
		return inv, fmt.Errorf("node %s publishes no devices: does the device plugin run there?", n.Name)
	}
	return inv, nil
}

// selectDevices returns the devices that people name, in the order of the node: by index, by UUID,
// or by its beginning. It returns all mistakes.
func selectDevices(inv sharing.Inventory, names []string) ([]sharing.Device, error) {
	var mistakes []error
	chosen := map[sharing.DeviceID]bool{}
	for _, name := range names {
		found := matchDevices(inv, name)
		switch len(found) {
		case 0:
			mistakes = append(mistakes, fmt.Errorf("node %s has no device %q: see kubectl deviceshare devices %s -o wide", inv.Node, name, inv.Node))
		case 1:
			chosen[found[0]] = true
		default:
			mistakes = append(mistakes, fmt.Errorf("%q begins the UUIDs of %d devices of node %s: write more of it", name, len(found), inv.Node))
		}
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return slices.DeleteFunc(slices.Clone(inv.Devices), func(d sharing.Device) bool { return !chosen[d.ID] }), nil
}

// shortestUUID is how much of a UUID names a device.
const shortestUUID = 4

// matchDevices returns the devices that a name may mean. An index goes before the beginning of a
// UUID, which may leave out GPU-.
func matchDevices(inv sharing.Inventory, name string) (found []sharing.DeviceID) {
	for i := range inv.Devices {
		if d := &inv.Devices[i]; strconv.Itoa(d.Index) == name || string(d.ID) == name {
			return []sharing.DeviceID{d.ID}
		}
	}
	if len(strings.TrimPrefix(name, "GPU-")) < shortestUUID {
		return nil
	}
	for i := range inv.Devices {
		id := string(inv.Devices[i].ID)
		if strings.HasPrefix(id, name) || strings.HasPrefix(strings.TrimPrefix(id, "GPU-"), name) {
			found = append(found, inv.Devices[i].ID)
		}
	}
	return found
}

// whoAmI is the user as the API server knows it, "" if it does not say.
func whoAmI(ctx context.Context, core kubernetes.Interface) string {
	review, err := core.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || len(review.Status.UserInfo.Username) > wire.LongestCordonText {
		return ""
	}
	return review.Status.UserInfo.Username
}

// completeDevices completes the name of a node, and then indexes of its devices.
func (o *options) completeDevices(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return o.completeNodes(c, args, "")
	}
	state, err := o.readState(c.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, n := range state.Nodes {
		if inv, err := devicesOf(n); err == nil && n.Name == args[0] {
			for i := range inv.Devices {
				if index := strconv.Itoa(inv.Devices[i].Index); !slices.Contains(args[1:], index) {
					names = append(names, fmt.Sprintf("%s\t%s %s", index, inv.Devices[i].Model, inv.Devices[i].ID))
				}
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
