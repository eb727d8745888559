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
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"deviceshare/config/live"
	"deviceshare/plugins/admission"
	"deviceshare/plugins/admission/certificate"
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
	options     *options
	clientset   kubernetes.Interface
	config      *live.Watcher
	certificate *certificate.Mounted
	hooks       webhook.Server
	exit        exit
	// read is closed once the configuration was known: a later mistake leaves in force
	// what was before it.
	read     chan struct{}
	readOnce sync.Once
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

func (s *server) checkReadiness(r *http.Request) error {
	return errors.Join(s.requireConfig(), s.certificate.Ready(r))
}

func (s *server) Settings() admission.Settings {
	out := admission.NewSettings(s.config.Current().Device, s.options.schedulers)
	out.Writers = s.options.writers
	out.Unasked, out.AskedBy = admission.Unasked(s.options.unasked), s.options.askedBy
	return out
}

func newServer(cfg *rest.Config, o *options, registry prometheus.Registerer) (*server, error) {
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	s := &server{options: o, clientset: clientset, read: make(chan struct{})}
	if s.certificate, err = certificate.NewMounted(o.certificateDir, clock.RealClock{}, ctrl.Log.WithName("certificate")); err != nil {
		return nil, err
	}
	problems, err := newProblems(registry, s.certificate.NotAfter)
	if err != nil {
		return nil, err
	}
	s.config = newWatcher(clientset, o, problems, s.noteConfig)
	handlers, err := admission.NewHandlers(s, registry)
	if err != nil {
		return nil, err
	}
	s.hooks = webhook.NewServer(webhook.Options{Host: o.bindAddress, Port: o.port, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) { c.GetCertificate = s.certificate.GetCertificate; c.MinVersion = tls.VersionTLS12 }}})
	handlers.Register(leavingServer{s.hooks, &s.exit})
	return s, nil
}
