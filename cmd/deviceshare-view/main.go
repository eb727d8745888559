// SPDX-License-Identifier: Apache-2.0

// Command deviceshare-view serves what people see of shared GPUs as a page for browsers: nodes with
// their devices, pods that wait and why, queues, and the last hour. It reads the API server,
// changes nothing, and shows the page to those only whom the API server lets read it. `kubectl
// deviceshare web` opens it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// version is what --version answers; a release sets it by the linker.
var version = "unreleased"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := rootCommand().ExecuteContext(ctx)
	stop()
	klog.Flush()
	if err != nil {
		fmt.Fprintf(os.Stderr, "deviceshare-view: %v\n", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	kubeconfig, address, configNamespace string
}

func rootCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:           "deviceshare-view",
		Short:         "Serve shared GPUs as a page for browsers",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return fmt.Errorf("%w\nsee deviceshare-view --help", err)
			}
			return run(c.Context(), &o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty uses the service account of the pod")
	f.StringVar(&o.address, "address", ":8443", "address of the page, over HTTPS and for ClusterRole deviceshare-metrics-reader, and of /healthz and /readyz")
	f.StringVar(&o.configNamespace, "config-namespace", "kube-system", "namespace of the ConfigMap volcano-vgpu-device-config, which is looked for in volcano-system next")
	return c
}

func (o *options) validate() error {
	var mistakes []error
	if !strings.Contains(o.address, ":") {
		mistakes = append(mistakes, fmt.Errorf("--address=%q: write host:port, or :port for every address", o.address))
	}
	if o.configNamespace == "" {
		mistakes = append(mistakes, errors.New("--config-namespace must not be empty"))
	}
	return errors.Join(mistakes...)
}
