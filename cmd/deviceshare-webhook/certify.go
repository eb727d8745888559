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
	"deviceshare/plugins/admission/registration"
)

// secretNames are the names of the Secrets that certificates are in.
type secretNames struct{ authorities, serving string }

func (s *secretNames) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.authorities, "authorities-secret", "deviceshare-webhook-certificates", "Secret of the CAs and their keys, which only who makes certificates reads")
	f.StringVar(&s.serving, "serving-secret", "deviceshare-webhook-serving", "Secret of the serving certificate, which the replicas share")
}

func (s *secretNames) validateFlags() error {
	if s.authorities == "" || s.serving == "" || s.authorities == s.serving {
		return errors.New("--authorities-secret and --serving-secret must be the names of two Secrets")
	}
	return nil
}

// certifyOptions is the command line of the subcommand certify.
type certifyOptions struct {
	kubeconfig string
	target     registration.Target
	secrets    secretNames
	patience   time.Duration
	unasked    bool
}

func (c *certifyOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; empty uses the service account of the pod")
	f.StringVar(&c.target.Namespace, "namespace", "", "namespace of the Service and of the Secrets")
	f.StringVar(&c.target.Service, "service-name", "", "name of the Service through which the API server calls the webhook")
	c.secrets.addFlags(f)
	f.BoolVar(&c.unasked, "unasked", false, "the chart also registers the webhook for pods that ask for no device")
	f.DurationVar(&c.patience, "patience", 2*time.Minute, "how long to try, for objects of the chart that are not there yet for instance")
}

func (c *certifyOptions) validateFlags() error {
	var mistakes []error
	c.target.Port = 443 // which no certificate names
	if err := c.target.Validate(); err != nil {
		mistakes = append(mistakes, fmt.Errorf("--namespace, --service-name: %w", err))
	}
	mistakes = append(mistakes, c.secrets.validateFlags())
	if c.patience <= 0 {
		mistakes = append(mistakes, fmt.Errorf("--patience=%s: write a time above 0", c.patience))
	}
	return errors.Join(mistakes...)
}

func certifyCommand() *cobra.Command {
	var c certifyOptions
	command := &cobra.Command{
		Use:   "certify",
		Short: "Make or renew the webhook's certificates once, and have the API server trust them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validateFlags(); err != nil {
				return fmt.Errorf("%w\nsee deviceshare-webhook certify --help", err)
			}
			return c.installCertificates(cmd.Context())
		},
	}
	c.addFlags(command.Flags())
	return command
}

func (c *certifyOptions) installCertificates(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("find the cluster: %w: give --kubeconfig, or run in a pod", err)
	}
	cfg.UserAgent = "deviceshare-webhook-ca"
	direct, err := newClient(cfg)
	if err != nil {
		return err
	}
	installer, err := certificate.NewInstaller(certificate.Options{
		Client: direct, Namespace: c.target.Namespace, Authorities: c.secrets.authorities, Serving: c.secrets.serving,
		Hosts: c.target.Hosts(), Policy: certificate.DefaultPolicy(), Clock: clock.RealClock{},
		Publisher: chartPublisher{direct, c.unasked}, Log: ctrl.Log.WithName("certificates"),
	})
	if err != nil {
		return fmt.Errorf("prepare the certificates: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	if err := installer.Install(ctx); err != nil {
		return fmt.Errorf("certify the webhook within %s: %w", c.patience, err)
	}
	return nil
}

// chartPublisher implements certificate.Publisher with the objects of the chart.
type chartPublisher struct {
	client  client.Client
	unasked bool
}

// Publish implements certificate.Publisher.
func (f chartPublisher) Publish(ctx context.Context, bundle []byte) error {
	err := registration.Fill(ctx, f.client, bundle)
	if f.unasked {
		err = errors.Join(err, registration.FillUnasked(ctx, f.client, bundle))
	}
	return err
}
