// SPDX-License-Identifier: Apache-2.0

// Command deviceshare-webhook completes and checks pods that ask for GPU shares when they
// are created, and protects their placements from being edited. Any number of replicas may
// run. It serves a certificate that it finds in a directory, and the chart registers it. Its
// subcommand certify, which runs in a Job with another account, makes the certificate and has the
// API server trust it.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is what --version answers; a release sets it by the linker.
var version = "unreleased"

func main() {
	ctrl.SetLogger(klog.Background())
	if err := rootCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		klog.Flush()
		fmt.Fprintf(os.Stderr, "deviceshare-webhook: %v\n", err)
		os.Exit(1)
	}
	klog.Flush()
}

func rootCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:           "deviceshare-webhook",
		Short:         "Complete and check pods that ask for GPU shares",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validateFlags(); err != nil {
				return fmt.Errorf("%w\nsee deviceshare-webhook --help", err)
			}
			return run(c.Context(), &o)
		},
	}
	o.addFlags(c.Flags())
	c.AddCommand(certifyCommand())
	return c
}
