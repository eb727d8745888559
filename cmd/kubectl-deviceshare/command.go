// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"deviceshare/view"
)

func rootCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, flags: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:           "kubectl-deviceshare",
		Short:         "Show shared GPUs: who has what, what is free, and why a pod waits",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl deviceshare"},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	o.addFlags(root.PersistentFlags())
	root.AddCommand(o.statusCommand(), o.devicesCommand(), o.podsCommand(), o.queuesCommand(), o.whyCommand(), o.topCommand(), o.webCommand(), o.doctorCommand(), o.captureCommand(), o.simulateCommand(), o.planCommand(), o.cordonCommand(), o.drainCommand(), o.uncordonCommand(), o.releaseCommand(), o.nodetypeCommand())
	return root
}

func (o *options) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Sum up devices by model, pods that wait, and problems with what to do", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.showAnswer(c.Context(), func(cluster *view.Cluster) (answer, error) {
				s := cluster.Status()
				return answer{value: s, text: s.Text(o.terminalPaint())}, nil
			})
		},
	}
}

func (o *options) devicesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "devices [NODE]", Short: "Draw every device with its sharers", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			node := ""
			if len(args) > 0 {
				node = args[0]
			}
			return o.showAnswer(c.Context(), func(cluster *view.Cluster) (answer, error) {
				list := cluster.Devices(node)
				if node != "" && len(list) == 0 {
					return answer{}, fmt.Errorf("node %s publishes no devices", node)
				}
				return answer{value: list, text: view.DevicesText(list, o.terminalPaint(), o.output == "wide")}, nil
			})
		},
	}
}

func (o *options) podsCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "pods", Short: "List which container has what of which device", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			namespace, err := o.targetNamespace(all)
			if err != nil {
				return err
			}
			return o.showAnswer(c.Context(), func(cluster *view.Cluster) (answer, error) {
				list := cluster.Pods(namespace)
				return answer{value: list, text: view.PodsText(list, o.terminalPaint(), o.output == "wide")}, nil
			})
		},
	}
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the pods of all namespaces")
	return c
}

func (o *options) queuesCommand() *cobra.Command {
	var namespaces bool
	c := &cobra.Command{
		Use: "queues", Short: "List quota, use and deserved of every queue", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.showAnswer(c.Context(), func(cluster *view.Cluster) (answer, error) {
				if namespaces {
					list := cluster.NamespaceLimits()
					return answer{value: list, text: view.NamespaceLimitsText(list, o.terminalPaint())}, nil
				}
				list := cluster.Queues()
				return answer{value: list, text: view.QueuesText(list, o.terminalPaint())}, nil
			})
		},
	}
	c.Flags().BoolVar(&namespaces, "namespaces", false, "list limits of devices in ResourceQuotas, and their use, instead")
	return c
}

func (o *options) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why POD", Short: "Say why a pod waits, in the scheduler's words", Args: cobra.ExactArgs(1),
		ValidArgsFunction: o.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			namespace, err := o.targetNamespace(false)
			if err != nil {
				return err
			}
			return o.showAnswer(c.Context(), func(cluster *view.Cluster) (answer, error) {
				w, ok := cluster.Why(namespace, args[0])
				if !ok {
					return answer{}, fmt.Errorf("no pod %s/%s asks for shared devices: is the namespace right? (-n)", namespace, args[0])
				}
				return answer{value: w, text: w.Text(o.terminalPaint())}, nil
			})
		},
	}
}

func (o *options) captureCommand() *cobra.Command {
	var hash bool
	c := &cobra.Command{
		Use: "capture FILE", Short: "Write what the other commands read into a file, without secrets; - is the standard output",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.captureTo(c.Context(), args[0], hash) },
	}
	c.Flags().BoolVar(&hash, "hash-names", false, "replace names and labels of nodes, namespaces, pods, containers, groups, queues and priorities by hashes")
	return c
}
