// SPDX-License-Identifier: Apache-2.0

// Package metrics serves the device plugin's metrics and its health. Counters are increased
// by those who act. Everything that is a state is read at each scrape, so it is never stale.
//
// Survey finds out what containers use of their devices. It compares two sources: what
// processes report in the regions that libvgpu.so keeps (modes hami-core and mps), and what
// the driver reports for the same processes. If the driver reports more, a program goes past
// the library. A container writes its own region, so its figures are evidence and not proof:
// a container that lies changes only the figures about itself.
package metrics

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"deviceshare/endpoint"
	"deviceshare/sharing"
)

// Problems that are counted. Each has its own metric label.
const (
	ProblemDriver        = "driver"
	ProblemPublish       = "publish"
	ProblemConfiguration = "configuration"
	ProblemCheckpoint    = "checkpoint"
	ProblemReconcile     = "reconcile"
	ProblemIdentity      = "identity"
	ProblemMPS           = "mps"
	ProblemMode          = "mode"
	ProblemUsage         = "usage" // a region that cannot be read; once per container
	ProblemRuntime       = "runtime"
)

// Metrics are the numbers of one device plugin. Methods are safe for concurrent
// use.
type Metrics struct {
	registry    *prometheus.Registry
	allocations prometheus.Counter
	prepares    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	refusals    prometheus.Counter
	releases    *prometheus.CounterVec
	problems    *prometheus.CounterVec
	moves       *prometheus.CounterVec
	evictions   *prometheus.CounterVec
}

// New returns the metrics of a node, which read states, and what containers use, when they are
// asked for. usage may be nil: then nothing is shown of it.
func New(node string, states States, usage UsageSource) *Metrics {
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "deviceshare_node_" + name, Help: help}, labels)
	}
	m := &Metrics{
		registry:    prometheus.NewRegistry(),
		allocations: prometheus.NewCounter(prometheus.CounterOpts{Name: "deviceshare_node_allocations_total", Help: "Allocations named for the kubelet."}),
		prepares:    count("prepares_total", "Containers prepared before a start, restarts included.", "mode"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "deviceshare_node_prepare_seconds", Help: "Time to prepare one container, without waiting for the runtime.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30},
		}, []string{"mode"}),
		refusals: prometheus.NewCounter(prometheus.CounterOpts{Name: "deviceshare_node_start_refusals_total", Help: "Container starts refused; the kubelet tries again."}),
		releases: count("releases_total", "Pods whose devices were taken back.", "result"),
		problems: count("problems_total", "Problems that were reported as events.", "kind"),
		moves: count("mode_changes_total",
			"Attempts to bring an idle device into a mode. Manual ones wait for an administrator.", "mode", "result"),
		evictions: count("misplaced_pods_total", "Pods refused for good because of where they were placed.", "result"),
	}
	for _, kind := range []string{
		ProblemDriver, ProblemPublish, ProblemConfiguration, ProblemCheckpoint, ProblemReconcile, ProblemIdentity, ProblemMode, ProblemMPS, ProblemUsage,
		ProblemRuntime,
	} {
		m.problems.WithLabelValues(kind) // so that an alert has something to look at
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newConfiguration(states))
	// Whoever scrapes, and however: what is told says which node it is about.
	named := prometheus.WrapRegistererWith(prometheus.Labels{"node": node}, m.registry)
	named.MustRegister(m.allocations, m.prepares, m.seconds, m.refusals, m.releases, m.problems, m.moves, m.evictions, newStates(states))
	if usage != nil {
		named.MustRegister(newUsed(usage))
	}
	return m
}

// Allocated counts an allocation.
func (m *Metrics) Allocated() { m.allocations.Inc() }

// Prepared counts a prepared container.
func (m *Metrics) Prepared(mode sharing.Mode, took time.Duration) {
	m.prepares.WithLabelValues(string(mode)).Inc()
	m.seconds.WithLabelValues(string(mode)).Observe(took.Seconds())
}

// Refused counts a refused start.
func (m *Metrics) Refused() { m.refusals.Inc() }

// Released counts a release.
func (m *Metrics) Released(err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.releases.WithLabelValues(result).Inc()
}

// Problem counts a reported problem.
func (m *Metrics) Problem(kind string) { m.problems.WithLabelValues(kind).Inc() }

// Moved counts an attempt to bring a device into a mode. result is success,
// failure or manual.
func (m *Metrics) Moved(mode sharing.Mode, result string) {
	m.moves.WithLabelValues(string(mode), result).Inc()
}

// Misplaced counts a pod that was refused for good. result is evicted or kept.
func (m *Metrics) Misplaced(result string) { m.evictions.WithLabelValues(result).Inc() }

// Serve answers on address until ctx ends: /metrics to those to whom access grants it, and
// /healthz to everybody. healthy says what keeps the plugin from its work, nil if nothing does,
// and names no pod.
func (m *Metrics) Serve(ctx context.Context, address string, access *endpoint.Access, healthy func() error) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", access.Guard("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	server, err := endpoint.Listen(address, mux)
	if err != nil {
		return fmt.Errorf("serve metrics (--metrics-address): %w", err)
	}
	return server.Serve(ctx)
}
