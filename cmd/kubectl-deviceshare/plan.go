// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// planner is one call of the command plan.
type planner struct {
	*options
	// devices, node, queue, class and moves are what is to start, if it is no pod; wish is all of
	// it, as arguments of the simulator.
	devices, moves     int
	node, queue, class string
	wish               []string
	apply              bool
}

func (o *options) planCommand() *cobra.Command {
	l := &planner{options: o}
	c := &cobra.Command{
		Use: "plan [POD]", Short: "Say which pods could move so that a pod that waits starts, and what it costs; --apply lets them",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: o.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			if err := l.readWish(args); err != nil {
				return err
			}
			return l.answerWish(c.Context())
		},
	}
	c.Flags().BoolVar(&l.apply, "apply", false, "say on the pods of the plan that they may move, with your rights; the scheduler then moves them")
	c.Flags().IntVar(&l.devices, "devices", 0, "plan for a pod that would ask for so many whole devices")
	c.Flags().StringVar(&l.node, "node", "", "with --devices: the only node for them")
	c.Flags().StringVar(&l.queue, "queue", "", "with --devices: their queue")
	c.Flags().StringVar(&l.class, "priority-class", "", "with --devices: the priority class of the pod; only pods of no higher priority move")
	c.Flags().IntVar(&l.moves, "moves", 0, "plan so many moves at most that bring free devices together")
	return c
}

// mostMoves bounds --moves, as the scheduler's argument is.
const mostMoves = 64

// readWish reads what is to start. It returns all mistakes.
func (l *planner) readWish(args []string) error {
	var mistakes []error
	wishes := len(args)
	for _, n := range []int{l.devices, l.moves} {
		if n != 0 {
			wishes++
		}
	}
	if wishes != 1 {
		mistakes = append(mistakes, errors.New("want one of: a pod that waits, --devices N, --moves N"))
	}
	if l.devices < 0 {
		mistakes = append(mistakes, fmt.Errorf("--devices %d: want a number of devices", l.devices))
	}
	if l.moves < 0 || l.moves > mostMoves {
		mistakes = append(mistakes, fmt.Errorf("--moves %d: want a number from 1 to %d", l.moves, mostMoves))
	}
	if l.devices == 0 && (l.node != "" || l.queue != "" || l.class != "") {
		mistakes = append(mistakes, errors.New("--node, --queue and --priority-class go with --devices"))
	}
	switch {
	case l.apply && len(args) == 0:
		mistakes = append(mistakes, errors.New("--apply is for a pod that waits, for which the scheduler keeps what is cleared: create it, and name it"))
	case l.apply && l.from != "":
		mistakes = append(mistakes, errors.New("--apply changes a cluster, and --from reads a file: use one of them"))
	}
	if l.watch {
		mistakes = append(mistakes, errors.New("--watch does not go with plan"))
	}
	if len(mistakes) > 0 {
		return errors.Join(mistakes...)
	}
	switch {
	case len(args) > 0:
		namespace, err := l.targetNamespace(false)
		if err != nil {
			return err
		}
		l.wish = []string{namespace + "/" + args[0]}
	case l.devices > 0:
		l.wish = []string{"--devices", fmt.Sprint(l.devices), "--node", l.node, "--queue", l.queue, "--priority-class", l.class}
	default:
		l.wish = []string{"--moves", fmt.Sprint(l.moves)}
	}
	return nil
}

func (l *planner) answerWish(ctx context.Context) error {
	if err := l.validate(); err != nil {
		return err
	}
	state, err := l.readFullState(ctx)
	if err != nil {
		return err
	}
	if isTerminal(l.streams.ErrOut) {
		l.tellPeople(fmt.Sprintf("planning in a copy of the cluster, with %d nodes and %d pods that have devices or want some ...", len(state.Nodes), len(state.Pods)))
	}
	found, err := l.askSimulator(ctx, state)
	if err != nil {
		return err
	}
	text, err := l.renderAnswer(answer{value: found, text: found.Text(l.terminalPaint())})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(l.streams.Out, text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return l.allowMoves(ctx, found)
}

// askSimulator has the program with the scheduler inside plan in a copy of the cluster.
func (l *planner) askSimulator(ctx context.Context, state *capture.State) (*view.Plan, error) {
	path, err := findSimulator()
	if err != nil {
		return nil, err
	}
	var in, out, said bytes.Buffer
	if err := capture.Write(&in, state); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, path, append([]string{"plan", "--output=json"}, l.wish...)...)
	c.Stdin, c.Stdout, c.Stderr, c.Env = &in, &out, &said, os.Environ()
	if err := c.Run(); err != nil {
		if text := strings.TrimSpace(said.String()); text != "" {
			return nil, errors.New(strings.TrimPrefix(text, "kubectl deviceshare simulate: "))
		}
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	var found view.Plan
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return nil, fmt.Errorf("read what %s answers: %w: is it of the same version as this program?", path, err)
	}
	return &found, nil
}

// allowMoves says on the pods of a plan that they may move. Without --apply it says how.
func (l *planner) allowMoves(ctx context.Context, found *view.Plan) error {
	unasked := found.Unasked()
	if !found.Starts() || len(unasked) == 0 {
		return nil
	}
	if !l.apply {
		if isForPeople := l.output == "table" || l.output == "wide"; isForPeople && len(l.wish) == 1 && l.from == "" {
			l.tellPeople("To let them move, run this again with --apply.")
		}
		return nil
	}
	_, core, err := l.connectToCluster()
	if err != nil {
		return err
	}
	if err := allowAll(ctx, core, unasked); err != nil {
		return err
	}
	l.tellPeople(fmt.Sprintf("%d pods may move now. The scheduler moves them when %s has waited for the time that it is told to, a minute as shipped.\n"+
		"Until then you take it back with: %s", len(unasked), l.wish[0], undoText(unasked)))
	return nil
}

// allowAll says on pods that they may move, on all or on none: each is tried first.
func allowAll(ctx context.Context, core kubernetes.Interface, steps []view.Step) error {
	if err := markAll(ctx, core, steps, true); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if err := markAll(ctx, core, steps, false); err != nil {
		return fmt.Errorf("%w; take back what was said with: %s", err, undoText(steps))
	}
	return nil
}

// markAll says on pods that they may move. A pod that is another one by now is a mistake.
func markAll(ctx context.Context, core kubernetes.Interface, steps []view.Step, try bool) error {
	options := metav1.PatchOptions{FieldManager: "kubectl-deviceshare"}
	if try {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var mistakes []error
	for _, s := range steps {
		namespace, name, _ := strings.Cut(s.Pod, "/")
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": s.UID, "annotations": map[string]string{wire.UserMayMove: wire.MayMove},
		}})
		if err != nil {
			return err
		}
		_, err = core.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, options)
		switch {
		case apierrors.IsForbidden(err):
			mistakes = append(mistakes, fmt.Errorf("you need the right to patch pods in namespace %s: %w", namespace, err))
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			mistakes = append(mistakes, fmt.Errorf("pod %s is gone by now: plan again: %w", s.Pod, err))
		case err != nil:
			mistakes = append(mistakes, fmt.Errorf("annotate pod %s: %w", s.Pod, err))
		}
	}
	return errors.Join(mistakes...)
}

// undoText is how to take back what was said on pods.
func undoText(steps []view.Step) string {
	names := map[string][]string{}
	var order []string
	for _, s := range steps {
		namespace, name, _ := strings.Cut(s.Pod, "/")
		if names[namespace] == nil {
			order = append(order, namespace)
		}
		names[namespace] = append(names[namespace], name)
	}
	var commands []string
	for _, namespace := range order {
		commands = append(commands, fmt.Sprintf("kubectl annotate pod -n %s %s %s-", namespace, strings.Join(names[namespace], " "), wire.UserMayMove))
	}
	return strings.Join(commands, "; ")
}
