// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	volcano "volcano.sh/apis/pkg/client/clientset/versioned"

	"deviceshare/sharing"
	"deviceshare/sharing/events"
	"deviceshare/sharing/factory"
	"deviceshare/view"
)

// drainer is one call of the command drain.
type drainer struct {
	cordoner
	dryRun  bool
	timeout time.Duration
	// period is the wait between two looks at the node.
	period time.Duration
}

func (o *options) drainCommand() *cobra.Command {
	r := &drainer{cordoner: cordoner{options: o, drains: true}, period: watchPeriod}
	c := &cobra.Command{
		Use: "drain NODE DEVICE...", Short: "Keep new pods off devices of a node and have those on them leave",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: o.completeDevices,
		RunE: func(c *cobra.Command, args []string) error {
			config, core, err := r.readCall(c, args)
			if err != nil {
				return err
			}
			if r.dryRun {
				groups, err := connectToVolcano(config)
				if err != nil {
					return err
				}
				return r.showWhoLeaves(c.Context(), core, groups)
			}
			return r.drainDevices(c.Context(), core)
		},
	}
	r.addCordonFlags(c)
	c.Flags().BoolVar(&r.dryRun, "dry-run", false, "only list who would leave")
	c.Flags().DurationVar(&r.timeout, "timeout", 0, "how long to wait for them; 0 is for ever")
	return c
}

// drainDevices has pods leave the devices, and returns when they have.
func (r *drainer) drainDevices(ctx context.Context, core kubernetes.Interface) error {
	if r.timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("not over after %s", r.timeout))
		defer cancel()
		ctx = limited
	}
	closed, err := r.cordonDevices(ctx, core, time.Now())
	if err != nil {
		return err
	}
	r.tellPeople(closed.beginSentence("takes no", "take no") + " new pods.")
	for last := ""; ; {
		left, err := r.readOccupants(ctx, core, closed)
		if err == nil && len(left) == 0 {
			_, err := fmt.Fprintf(r.streams.Out, "%s. In use again with: %s\n", closed.beginSentence("is empty", "are empty"), closed.undoCommand())
			return err
		}
		if err == nil {
			if text := view.OccupantsLine(left) + r.findObstacle(ctx, core, closed); text != last {
				r.tellPeople(text)
				last = text
			}
			err = sleepContext(ctx, r.period)
		}
		if err != nil {
			return fmt.Errorf("wait until the devices are empty: %w; the scheduler goes on without you; stop it with: %s", err, closed.undoCommand())
		}
	}
}

// sleepContext waits. It returns why the context is done, if it is.
func sleepContext(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// showWhoLeaves lists the pods that would have to leave.
func (r *drainer) showWhoLeaves(ctx context.Context, core kubernetes.Interface, groups volcano.Interface) error {
	closed, err := r.findDevices(ctx, core)
	if err != nil {
		return err
	}
	list, err := r.readOccupants(ctx, core, closed)
	if err != nil {
		return err
	}
	noteBudgets(ctx, core, list)
	noteGangs(ctx, core, groups, list)
	text := view.OccupantsText(list, r.terminalPaint())
	if len(list) == 0 {
		text = closed.beginSentence("is empty", "are empty") + ".\n"
	}
	if text, err = r.renderAnswer(answer{value: list, text: text}); err != nil {
		return err
	}
	_, err = fmt.Fprint(r.streams.Out, text)
	return err
}

// findDevices returns the devices that the call names.
func (r *drainer) findDevices(ctx context.Context, core kubernetes.Interface) (*closedDevices, error) {
	n, err := readNode(ctx, core, r.node)
	if err != nil {
		return nil, err
	}
	inv, err := devicesOf(n)
	if err != nil {
		return nil, err
	}
	chosen, err := selectDevices(inv, r.devices)
	return &closedDevices{node: r.node, devices: chosen}, err
}

// readOccupants reads who is on the devices of the node.
func (r *drainer) readOccupants(ctx context.Context, core kubernetes.Interface, closed *closedDevices) ([]view.Occupant, error) {
	state, err := r.readNodeState(ctx, core, r.node)
	if err != nil {
		return nil, err
	}
	pods, err := core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", r.node).String()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", r.node, err)
	}
	for i := range pods.Items {
		state.Pods = append(state.Pods, &pods.Items[i])
	}
	return view.Read(state, factory.New()).Occupants(r.node, closed.deviceIDs()), nil
}

// noteBudgets notes of pods that leave which budgets do not let all of them go at once. Budgets
// that may not be read are left out: the API server keeps them anyway.
func noteBudgets(ctx context.Context, core kubernetes.Interface, list []view.Occupant) {
	for _, namespace := range namespacesOf(list) {
		budgets, err := core.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range budgets.Items {
			b := &budgets.Items[i]
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil {
				continue
			}
			addNote(list, fmt.Sprintf("budget %s lets %d go now", b.Name, b.Status.DisruptionsAllowed), int(b.Status.DisruptionsAllowed), func(p *corev1.Pod) bool {
				return p.Namespace == namespace && selector.Matches(labels.Set(p.Labels))
			})
		}
	}
}

// noteGangs notes of pods that leave whose groups fall below what they need. Groups that may not
// be read are left out.
func noteGangs(ctx context.Context, core kubernetes.Interface, groups volcano.Interface, list []view.Occupant) {
	for _, namespace := range namespacesOf(list) {
		all, err := groups.SchedulingV1beta1().PodGroups(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		pods, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range all.Items {
			g := &all.Items[i]
			isMember := func(p *corev1.Pod) bool {
				name, is := view.GroupOf(p)
				return is && name == types.NamespacedName{Namespace: namespace, Name: g.Name}
			}
			running := 0
			for j := range pods.Items {
				if p := &pods.Items[j]; isMember(p) && p.Spec.NodeName != "" && !podutil.IsPodTerminal(p) {
					running++
				}
			}
			addNote(list, fmt.Sprintf("group %s needs %d of its %d pods", g.Name, g.Spec.MinMember, running), running-int(g.Spec.MinMember), isMember)
		}
	}
}

// addNote adds a note to the pods that leave and are meant, if they are more than may leave.
func addNote(list []view.Occupant, text string, allowed int, isMeant func(*corev1.Pod) bool) {
	var meant []int
	for i := range list {
		if o := &list[i]; o.Stays == "" && !o.Ending && isMeant(o.Object()) {
			meant = append(meant, i)
		}
	}
	if len(meant) <= allowed {
		return
	}
	for _, i := range meant {
		list[i].Note = strings.TrimPrefix(list[i].Note+"; "+text, "; ")
	}
}

func namespacesOf(list []view.Occupant) []string {
	names := map[string]bool{}
	for i := range list {
		names[list[i].Object().Namespace] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// findObstacle is what the scheduler says of the pods that do not leave, "" if it says nothing or
// that may not be read.
func (r *drainer) findObstacle(ctx context.Context, core kubernetes.Interface, closed *closedDevices) string {
	list, err := core.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: fields.AndSelectors(fields.OneTermEqualSelector("involvedObject.name", r.node), fields.OneTermEqualSelector("reason", events.GPUDrainHeldUp)).String(),
	})
	if err != nil {
		return ""
	}
	var last *corev1.Event
	for i := range list.Items {
		e := &list.Items[i]
		isAboutThem := slices.ContainsFunc(closed.deviceIDs(), func(id sharing.DeviceID) bool { return strings.Contains(e.Message, string(id)) })
		if isAboutThem && (last == nil || lastSeen(last).Before(lastSeen(e))) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return "\n  the scheduler says: " + last.Message
}

// lastSeen is when an event was told last.
func lastSeen(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}
