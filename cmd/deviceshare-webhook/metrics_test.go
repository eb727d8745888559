// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"deviceshare/endpoint/endpointtest"
)

func TestTheMetricsAreForTheirReadersAndAnAddressInUseNamesTheFlag(t *testing.T) {
	taken, err := net.Listen("tcp", endpointtest.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	users := endpointtest.NewUsers()
	users.Issue("reader", "reader")
	users.Allow("reader", "/metrics", true)
	s := &server{options: &options{metricsAddress: address}, clientset: users.Client(t)}
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.serveMetrics(ctx); err == nil || !strings.Contains(err.Error(), "--metrics-address") {
		t.Errorf("the error is %v", err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.serveMetrics(ctx) }()
	for authorization, want := range map[string]int{"": http.StatusUnauthorized, "Bearer reader": http.StatusOK} {
		answer, err := endpointtest.Get("https://"+address+"/metrics", authorization)
		for deadline := time.Now().Add(10 * time.Minute); err != nil && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			answer, err = endpointtest.Get("https://"+address+"/metrics", authorization)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil {
			t.Error(err)
		}
		if answer.StatusCode != want {
			t.Errorf("with %q: %d", authorization, answer.StatusCode)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTheMetricsAreNamedAsPrometheusWantsIt(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if _, err := newProblems(registry, time.Now); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) < 2 {
		t.Fatalf("%d metrics: %v", len(families), err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
