// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"deviceshare/config/live"
	"deviceshare/endpoint"
)

// runParts runs the parts in the order in which they need each other: pods are judged by the
// configuration, so the port opens when that is known.
func (s *server) runParts(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	run := func(what string, part func(context.Context) error) {
		parts.Go(func() {
			if err := part(ctx); err != nil {
				cancel(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	run("follow the configuration", s.config.Run)
	run("follow the certificate", s.certificate.Start)
	err := s.serveReviews(ctx)
	cancel(err)
	parts.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func (s *server) serveReviews(ctx context.Context) error {
	if s.config.Wait(ctx) != nil {
		return nil
	}
	s.noteConfig(s.config.Current())
	select {
	case <-s.read:
	case <-ctx.Done():
		return nil
	}
	if err := s.hooks.Start(ctx); err != nil {
		return fmt.Errorf("serve admission reviews: %w", err)
	}
	return nil
}

// serveMetrics answers /metrics to those who may read it. They name no pods, and are guarded like
// those of the other programs so that one rule holds for all of them.
func (s *server) serveMetrics(ctx context.Context) error {
	mux := http.NewServeMux()
	page := promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{})
	mux.Handle("/metrics", endpoint.NewAccess(s.clientset).Guard("/metrics", page))
	served, err := endpoint.Listen(s.options.metricsAddress, mux)
	if err != nil {
		return fmt.Errorf("serve metrics (--metrics-address): %w", err)
	}
	return served.Serve(ctx)
}

// checkLiveness is the liveness check. A process that waits for the API server is alive.
func (s *server) checkLiveness(*http.Request) error { return nil }

// newWatcher follows the device configuration, which can rename the resources.
func newWatcher(client kubernetes.Interface, o *options, problems prometheus.Counter, changed func(live.Value)) *live.Watcher {
	log := ctrl.Log.WithName("configuration")
	l := live.Options{
		Client: client,
		Changed: func(v live.Value) {
			log.Info("device configuration in force", "configMap", v.DeviceFrom.Namespace+"/"+v.DeviceFrom.Name, "hash", v.Device.Hash())
			changed(v)
		},
		Problem: func(r live.Report) {
			problems.Add(float64(len(r.Problems)))
			for _, p := range r.Problems {
				log.Error(errors.New(p.String()), "a problem of the configuration; what was in force before stays so",
					"configMap", r.Source.Namespace+"/"+r.Source.Name)
			}
		},
	}
	if namespace, name, err := o.splitDeviceConfig(); err == nil && name != "" {
		l.Namespaces, l.DeviceName = []string{namespace}, name
	}
	return live.New(l)
}

// newProblems returns the counter of what is wrong in the ConfigMaps, and registers it with the
// gauge of the certificate's end.
func newProblems(registry prometheus.Registerer, expiry func() time.Time) (prometheus.Counter, error) {
	problems := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "deviceshare_webhook_config_problems_total",
		Help: "Problems found in the ConfigMaps that the webhook reads.",
	})
	end := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "deviceshare_webhook_certificate_expiry_seconds",
		Help: "End of the serving certificate, in seconds since 1970. Whoever makes it renews it at two thirds of its life.",
	}, func() float64 { return float64(expiry().Unix()) })
	for _, c := range []prometheus.Collector{end, problems} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return problems, nil
}
