// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// limits bound what one connection can cost.
type limits struct {
	// header is how long a handshake and a request's header may each take, request the request as
	// a whole, answer the time until the answer is read, idle the rest between two requests.
	header, request, answer, idle time.Duration
	headerBytes                   int
}

// defaultLimits leave time for a profile of 30 seconds.
func defaultLimits() limits {
	return limits{header: 5 * time.Second, request: 10 * time.Second, answer: time.Minute, idle: 30 * time.Second, headerBytes: 2 * maxToken}
}

// Server is an address that is open.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens an address for a handler. Serve answers there, over HTTPS.
func Listen(address string, handler http.Handler) (*Server, error) {
	return listenWithLimits(address, handler, defaultLimits())
}

func listenWithLimits(address string, handler http.Handler, l limits) (*Server, error) {
	certificate, err := selfSigned()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", address, err)
	}
	// Many requests on one connection would cost a stranger one connection only.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &Server{listener: listener, http: &http.Server{
		Handler: handler, Protocols: &protocols,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: l.header, ReadTimeout: l.request, WriteTimeout: l.answer, IdleTimeout: l.idle,
		MaxHeaderBytes: l.headerBytes, ErrorLog: log.New(quietly{}, "", 0),
	}}, nil
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	if err := s.http.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve at %s: %w", s.Address(), err)
	}
	return nil
}

// selfSigned makes a certificate that holds for a year, as Kubernetes' components do for
// themselves. It is kept in memory only.
func selfSigned() (tls.Certificate, error) {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "localhost"
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a serving certificate: %w", err)
	}
	return pair, nil
}

// quietly takes what net/http says of connections. Any stranger can cause it, so it is not for the
// usual log.
type quietly struct{}

func (quietly) Write(line []byte) (int, error) {
	klog.V(4).Info(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
