// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"deviceshare/plugins/admission/certificate"
)

// certifyOptions is the command line of the subcommand certify.
type certifyOptions struct {
	kubeconfig string
	namespace  string
	service    string
	secret     string
	patience   time.Duration
	unasked    bool
}

func (c *certifyOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; empty uses the service account of the pod")
	f.StringVar(&c.namespace, "namespace", "", "namespace of the Service and of the Secret")
	f.StringVar(&c.service, "service-name", "", "name of the Service through which the API server calls the webhook")
	f.StringVar(&c.secret, "serving-secret", "deviceshare-webhook-serving", "Secret of the serving certificate, which the replicas share")
	f.BoolVar(&c.unasked, "unasked", false, "the chart also registers the webhook for pods that ask for no device")
	f.DurationVar(&c.patience, "patience", 2*time.Minute, "how long to try, for objects of the chart that are not there yet for instance")
}

func (c *certifyOptions) validateFlags() error {
	var mistakes []error
	for _, name := range []struct{ flag, value string }{{"namespace", c.namespace}, {"service-name", c.service}, {"serving-secret", c.secret}} {
		if name.value == "" {
			mistakes = append(mistakes, fmt.Errorf("--%s must not be empty", name.flag))
		}
	}
	if c.patience <= 0 {
		mistakes = append(mistakes, fmt.Errorf("--patience=%s: write a time above 0", c.patience))
	}
	return errors.Join(mistakes...)
}

func certifyCommand() *cobra.Command {
	var c certifyOptions
	command := &cobra.Command{
		Use:   "certify",
		Short: "Make or renew the webhook's certificate once, and have the API server trust it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validateFlags(); err != nil {
				return fmt.Errorf("%w\nsee deviceshare-webhook certify --help", err)
			}
			return c.installCertificate(cmd.Context())
		},
	}
	c.addFlags(command.Flags())
	return command
}

func (c *certifyOptions) installCertificate(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("find the cluster: %w: give --kubeconfig, or run in a pod", err)
	}
	cfg.UserAgent = "deviceshare-webhook-ca"
	direct, err := client.New(cfg, client.Options{})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	name := c.service + "." + c.namespace
	installer := certificate.Installer{
		Client: direct, Secret: client.ObjectKey{Namespace: c.namespace, Name: c.secret},
		Configurations: certificate.Configurations(c.unasked),
		Hosts:          []string{name + ".svc", name, name + ".svc.cluster.local"},
		Clock:          clock.RealClock{}, Log: ctrl.Log.WithName("certificate"),
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	if err := installer.Install(ctx); err != nil {
		return fmt.Errorf("certify the webhook within %s: %w", c.patience, err)
	}
	return nil
}
