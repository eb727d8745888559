// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/cmd/scheduler/app/options"

	"deviceshare/plugins/liveness"
)

// serveHealth serves /healthz where Volcano would, and tells Volcano not to: its own answers while
// the sessions hang, and does not answer while another scheduler leads.
func serveHealth(volcano *options.ServerOption, sessions *liveness.Pulse) error {
	if !volcano.EnableHealthz {
		return nil
	}
	volcano.EnableHealthz = false
	listener, err := net.Listen("tcp", volcano.HealthzBindAddress)
	if err != nil {
		return fmt.Errorf("serve the health check: %w", err)
	}
	if len(volcano.CaCertData) != 0 && len(volcano.CertData) != 0 && len(volcano.KeyData) != 0 {
		certificate, err := tls.X509KeyPair(volcano.CertData, volcano.KeyData)
		if err != nil {
			return fmt.Errorf("serve the health check: read the certificate: %w", err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	}
	mux := http.NewServeMux()
	healthz.InstallHandler(mux, healthz.PingHealthz, healthz.NamedCheck("sessions", func(*http.Request) error { return sessions.Check() }))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	go func() { klog.ErrorS(server.Serve(listener), "the health check is served no more") }()
	return nil
}
