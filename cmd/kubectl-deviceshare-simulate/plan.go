// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/sharing/factory"
	"deviceshare/view"
	"deviceshare/view/capture"
	"deviceshare/view/simulate"
)

// planCommand is what "kubectl deviceshare plan" asks; people have no use for it. It reads a
// capture from the standard input.
func planCommand(o *options, parent *cobra.Command) *cobra.Command {
	wish, moves := simulate.Wish{}, 0
	c := &cobra.Command{
		Use: "plan [NAMESPACE/POD]", Hidden: true, Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				namespace, name, both := strings.Cut(args[0], "/")
				if !both {
					return fmt.Errorf("%s: want NAMESPACE/POD", args[0])
				}
				wish.Pod = types.NamespacedName{Namespace: namespace, Name: name}
			}
			return o.answerPlan(&wish, moves)
		},
	}
	c.Flags().IntVar(&wish.Devices, "devices", 0, "how many whole devices a pod would ask for")
	c.Flags().StringVar(&wish.Node, "node", "", "the only node for them")
	c.Flags().StringVar(&wish.Queue, "queue", "", "their queue")
	c.Flags().StringVar(&wish.PriorityClass, "priority-class", "", "the priority class of the pod that would ask for them")
	c.Flags().IntVar(&moves, "moves", 0, "how many pods move at most to bring free devices together")
	c.Flags().AddFlag(parent.Flag("output"))
	c.Flags().AddFlag(parent.Flag("scheduler-name"))
	return c
}

func (o *options) answerPlan(wish *simulate.Wish, moves int) error {
	wishes := 0
	for _, is := range []bool{wish.Pod.Name != "", wish.Devices > 0, moves > 0} {
		if is {
			wishes++
		}
	}
	if wishes != 1 {
		return errors.New("plan: want a pod, a number of devices or a number of moves")
	}
	if err := o.validate(""); err != nil {
		return err
	}
	state, err := capture.ReadAll(o.streams.In)
	if err != nil {
		return err
	}
	q := &simulate.Question{Backends: factory.New(), SchedulerName: o.schedulerName}
	var found *view.Plan
	if moves > 0 {
		found, err = simulate.Defragment(state, q, moves)
	} else {
		found, err = simulate.Plan(state, q, wish)
	}
	if err != nil {
		return err
	}
	return o.writeAnswer(found, func(p view.Paint) string { return found.Text(p) })
}
