// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"deviceshare/config/live"
	"deviceshare/plugins/admission"
	"deviceshare/plugins/admission/certificate"
	"deviceshare/plugins/admission/registration"
)

// run puts the parts together and serves until ctx ends, and for a moment longer.
func run(ctx context.Context, o *options) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("find the cluster: %w: give --kubeconfig, or run in a pod", err)
	}
	cfg.UserAgent = "deviceshare-webhook"
	mgr, err := newManager(cfg, o)
	if err != nil {
		return err
	}
	s, err := newServer(cfg, o, metrics.Registry)
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("alive", s.alive); err != nil {
		return fmt.Errorf("add the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("certificate", s.ready); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(s.start)); err != nil {
		return fmt.Errorf("add the webhook: %w", err)
	}
	if o.metricsAddress != "" {
		if err := mgr.Add(manager.RunnableFunc(s.serveMetrics)); err != nil {
			return fmt.Errorf("add the metrics: %w", err)
		}
	}
	working, end := s.exit.after(ctx, leaveFor)
	defer end()
	if err := mgr.Start(working); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func newManager(cfg *rest.Config, o *options) (ctrl.Manager, error) {
	const off = "0"
	health := o.healthAddress
	if health == "" {
		health = off
	}
	grace := 10 * time.Second
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: clientgoscheme.Scheme,
		// Its own server for them asks nobody for a token: serveMetrics does.
		Metrics:                 metricsserver.Options{BindAddress: off},
		HealthProbeBindAddress:  health,
		GracefulShutdownTimeout: &grace,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare to serve: %w", err)
	}
	return mgr, nil
}

// server holds the parts that know of each other.
type server struct {
	options *options
	// direct talks to the API server without a cache, which would list and watch
	// Secrets.
	direct    client.Client
	clientset kubernetes.Interface
	config    *live.Watcher
	keeper    *certificate.Keeper
	hooks     webhook.Server
	exit      exit
	// read is set once the configuration was known: a later mistake leaves in force
	// what was before it.
	read atomic.Bool
}

// unread reports why this process cannot judge pods: it has started while nobody can
// say what the configuration is. Under the default resource names it would complete
// the wrong pods and miss the right ones, so it does not register nor serve, like one
// that is down: pods are created, and the scheduler says what they lack.
func (s *server) unread() error {
	if s.config.Current().DeviceUnread && !s.read.Load() {
		return errors.New("the device configuration cannot be read, see the problems logged before, and pods are not judged by defaults")
	}
	return nil
}

// ready is the readiness check.
func (s *server) ready(r *http.Request) error {
	if err := s.keeper.Ready(r); err != nil {
		return errors.Join(s.unread(), err)
	}
	return nil
}

// Settings implements admission.SettingsSource.
func (s *server) Settings() admission.Settings {
	out := admission.NewSettings(s.config.Current().Device, s.options.schedulers)
	out.Writers = s.options.writers
	out.Unasked, out.AskedBy = admission.Unasked(s.options.unasked), s.options.askedBy
	return out
}

// Publish implements certificate.Publisher: the API server learns whom to trust. What it calls
// for is in objects of the chart; a webhook that is reached by --url has no chart and writes
// them itself. The keeper calls it first when the configuration has been looked for.
func (s *server) Publish(ctx context.Context, bundle []byte) error {
	if err := s.unread(); err != nil {
		return err
	}
	s.read.Store(true)
	names := s.Settings().Names
	if s.options.url == "" {
		err := registration.Fill(ctx, s.direct, names, bundle)
		if s.options.voids() {
			err = errors.Join(err, registration.FillUnasked(ctx, s.direct, bundle))
		}
		return err
	}
	return registration.Apply(ctx, s.direct, registration.Registration{
		Target: s.options.target(), Names: names, Excluded: []string{s.options.namespace}, Writers: s.options.writers,
	}, bundle)
}

func newServer(cfg *rest.Config, o *options, registry prometheus.Registerer) (*server, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the APIs: %w", err)
	}
	direct, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	m, err := newGauges(registry)
	if err != nil {
		return nil, err
	}
	s := &server{options: o, direct: direct, clientset: clientset}
	s.config = watch(clientset, o, m, func() { s.keeper.Poke() })
	s.keeper, err = certificate.NewKeeper(certificate.Options{
		Client: direct, Secret: types.NamespacedName{Namespace: o.namespace, Name: o.secretName},
		Hosts: o.target().Hosts(), Policy: certificate.DefaultPolicy(), Clock: clock.RealClock{},
		Publisher: s, Log: ctrl.Log.WithName("certificates"), OnServe: m.serving,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the certificates: %w", err)
	}
	handlers, err := admission.NewHandlers(s, registry)
	if err != nil {
		return nil, err
	}
	s.hooks = webhook.NewServer(webhook.Options{Host: o.host(), Port: o.port, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) { c.GetCertificate = s.keeper.GetCertificate; c.MinVersion = tls.VersionTLS12 }}})
	handlers.Register(leavingServer{s.hooks, &s.exit})
	return s, nil
}
