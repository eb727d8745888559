// SPDX-License-Identifier: Apache-2.0

// Command deviceshare-device-plugin runs on every node with GPUs: it publishes
// the devices, and prepares containers for the shares the scheduler gave them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/cluster"
)

// version is what --version answers; a release sets it by the linker.
var version = "unreleased"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		klog.Flush()
		fmt.Fprintln(os.Stderr, "deviceshare-device-plugin:", err)
		stop()
		os.Exit(1)
	}
	klog.Flush()
}

func rootCommand() *cobra.Command {
	o := defaultOptions()
	c := &cobra.Command{
		Use:           "deviceshare-device-plugin",
		Short:         "Publish and prepare the shared GPUs of one node",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validateFlags(); err != nil {
				return err
			}
			return run(c.Context(), o)
		},
	}
	o.addFlags(c.PersistentFlags())
	c.AddCommand(newInventory(o), newKeep(&o.modes, &o.base, &o.places), cluster.WithdrawCommand(&o.kubeconfig))
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	for _, name := range []string{"v", "vmodule"} {
		c.PersistentFlags().AddGoFlag(logging.Lookup(name))
	}
	return c
}
