// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
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
	if err := mgr.AddHealthzCheck("alive", s.checkLiveness); err != nil {
		return fmt.Errorf("add the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("certificate", s.checkReadiness); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(s.runParts)); err != nil {
		return fmt.Errorf("add the webhook: %w", err)
	}
	if o.metricsAddress != "" {
		if err := mgr.Add(manager.RunnableFunc(s.serveMetrics)); err != nil {
			return fmt.Errorf("add the metrics: %w", err)
		}
	}
	working, end := s.exit.extendContext(ctx, leaveFor)
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
	direct       client.Client
	clientset    kubernetes.Interface
	config       *live.Watcher
	certificates certificateSource
	hooks        webhook.Server
	exit         exit
	// read is closed once the configuration was known: a later mistake leaves in force
	// what was before it.
	read     chan struct{}
	readOnce sync.Once
}

// certificateSource are where the serving certificate comes from: a directory, or a keeper that
// makes it.
type certificateSource interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Ready says why clients refuse what is served.
	Ready(*http.Request) error
	// Serving returns a channel that is closed when there is a certificate.
	Serving() <-chan struct{}
	// Start keeps the certificate up to date until ctx ends.
	Start(ctx context.Context) error
}

// noteConfig notes that a configuration can be read.
func (s *server) noteConfig(v live.Value) {
	if !v.DeviceUnread {
		s.readOnce.Do(func() { close(s.read) })
	}
}

// requireConfig reports why this process cannot judge pods: it has started while nobody can
// say what the configuration is. Under the default resource names it would complete
// the wrong pods and miss the right ones, so it does not serve, like one that is down:
// pods are created, and the scheduler says what they lack.
func (s *server) requireConfig() error {
	select {
	case <-s.read:
		return nil
	default:
		return errors.New("the device configuration cannot be read, see the problems logged before, and pods are not judged by defaults")
	}
}

// checkReadiness is the readiness check.
func (s *server) checkReadiness(r *http.Request) error {
	return errors.Join(s.requireConfig(), s.certificates.Ready(r))
}

// Settings implements admission.SettingsSource.
func (s *server) Settings() admission.Settings {
	out := admission.NewSettings(s.config.Current().Device, s.options.schedulers)
	out.Writers = s.options.writers
	out.Unasked, out.AskedBy = admission.Unasked(s.options.unasked), s.options.askedBy
	return out
}

// Publish implements certificate.Publisher for a webhook that is reached by --url: it has no
// chart, and registers itself.
func (s *server) Publish(ctx context.Context, bundle []byte) error {
	return registration.Apply(ctx, s.direct, registration.Registration{
		Target: s.options.urlTarget(), Excluded: []string{s.options.namespace}, Writers: s.options.writers,
		Scheduler: s.options.schedulers[0], Names: s.config.Current().Device.Names(),
	}, bundle)
}

// newClient returns a client that caches nothing.
func newClient(cfg *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the APIs: %w", err)
	}
	direct, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return direct, nil
}

func newServer(cfg *rest.Config, o *options, registry prometheus.Registerer) (*server, error) {
	direct, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	m, err := newGauges(registry)
	if err != nil {
		return nil, err
	}
	s := &server{options: o, direct: direct, clientset: clientset, read: make(chan struct{})}
	s.config = newWatcher(clientset, o, m, s.noteConfig)
	if s.certificates, err = s.newCertificates(m.setExpiry); err != nil {
		return nil, fmt.Errorf("prepare the certificates: %w", err)
	}
	handlers, err := admission.NewHandlers(s, registry)
	if err != nil {
		return nil, err
	}
	s.hooks = webhook.NewServer(webhook.Options{Host: o.listenHost(), Port: o.port, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) { c.GetCertificate = s.certificates.GetCertificate; c.MinVersion = tls.VersionTLS12 }}})
	handlers.Register(leavingServer{s.hooks, &s.exit})
	return s, nil
}

// newCertificates returns the source of the serving certificate that the options name.
func (s *server) newCertificates(onServe func(end time.Time)) (certificateSource, error) {
	o, log := s.options, ctrl.Log.WithName("certificates")
	if o.certificateDir != "" {
		return certificate.NewMounted(o.certificateDir, clock.RealClock{}, log, onServe)
	}
	installer, err := certificate.NewInstaller(certificate.Options{
		Client: s.direct, Namespace: o.namespace, Authorities: o.secrets.authorities, Serving: o.secrets.serving,
		Hosts: o.urlTarget().Hosts(), Policy: certificate.DefaultPolicy(), Clock: clock.RealClock{}, Publisher: s, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return certificate.NewRenewer(installer, onServe), nil
}
