// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"deviceshare/sharing/factory"
	"deviceshare/view"
)

func (o *options) nodetypeCommand() *cobra.Command {
	var autoscaler string
	c := &cobra.Command{
		Use: "nodetype NODE", Short: "Say what nodes like this one offer, as an autoscaler reads it that has none yet",
		Args: cobra.ExactArgs(1), ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			if o.from != "" || o.watch {
				return errors.New("--from and --watch do not go with nodetype: it reads a node")
			}
			_, core, err := o.connectToCluster()
			if err != nil {
				return err
			}
			return o.showNodeType(c.Context(), core, args[0], autoscaler)
		},
	}
	c.Flags().StringVar(&autoscaler, "for", "aws", strings.Join(view.Autoscalers(), ", "))
	return c
}

// showNodeType writes the type of a node for an autoscaler.
func (o *options) showNodeType(ctx context.Context, core kubernetes.Interface, node, autoscaler string) error {
	if err := o.validate(); err != nil {
		return err
	}
	state, err := o.readNodeState(ctx, core, node)
	if err != nil {
		return err
	}
	found, ok := view.Read(state, factory.New()).NodeTypeOf(state.Nodes[0])
	if !ok {
		return fmt.Errorf("node %s offers no devices now: does the device plugin run there?", node)
	}
	text, err := found.Text(autoscaler)
	if err != nil {
		return fmt.Errorf("--for: %w", err)
	}
	if text, err = o.renderAnswer(answer{value: found, text: text}); err != nil {
		return err
	}
	_, err = fmt.Fprint(o.streams.Out, text)
	return err
}
