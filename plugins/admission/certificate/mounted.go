// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// warnEvery is how often a certificate that should have been renewed is spoken of.
const warnEvery = time.Hour

// Mounted serves the certificate of two files, tls.crt and tls.key, which the kubelet keeps as
// they are in a Secret. It takes a renewed one without a restart. If both cannot be read, or do not
// belong together, it goes on with what it has. Its methods may be called from several goroutines.
type Mounted struct {
	watcher *certwatcher.CertWatcher
	clock   clock.Clock
	log     logr.Logger
	onServe func(notAfter time.Time)
	mu      sync.Mutex
	told    *x509.Certificate
}

// NewMounted reads the certificate of a directory. onServe is told the end of the certificate that
// is served, once for each new one.
func NewMounted(dir string, clock clock.Clock, log logr.Logger, onServe func(notAfter time.Time)) (*Mounted, error) {
	watcher, err := certwatcher.New(filepath.Join(dir, ServingCertKey), filepath.Join(dir, ServingKeyKey))
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate in %s: %w", dir, err)
	}
	m := &Mounted{watcher: watcher, clock: clock, log: log, onServe: onServe}
	watcher.RegisterCallback(m.noteServed)
	return m, nil
}

// noteServed is told of each certificate, by the watcher.
func (m *Mounted) noteServed(c tls.Certificate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told != nil && m.told.Equal(c.Leaf) {
		return
	}
	m.told = c.Leaf
	logServed(m.log, c.Leaf)
	m.onServe(c.Leaf.NotAfter)
}

func logServed(log logr.Logger, c *x509.Certificate) {
	log.Info("serving a new certificate", "serial", c.SerialNumber.Text(16), "notAfter", c.NotAfter.Format(time.RFC3339))
}

// GetCertificate serves tls.Config.
func (m *Mounted) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return m.watcher.GetCertificate(hello)
}

// Serving returns a closed channel: there is a certificate from the beginning.
func (m *Mounted) Serving() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Ready is a readiness check: ready when a certificate that is valid is served.
func (m *Mounted) Ready(*http.Request) error {
	c, err := m.GetCertificate(nil)
	if err != nil {
		return err
	}
	return requireValid(c.Leaf, m.clock.Now())
}

// Start follows the files until ctx ends, and logs once an hour that nobody has renewed a
// certificate that should have been.
func (m *Mounted) Start(ctx context.Context) error {
	watched := make(chan error, 1)
	go func() { watched <- m.watcher.Start(ctx) }()
	for {
		m.warnIfOverdue()
		timer := m.clock.NewTimer(warnEvery)
		select {
		case err := <-watched:
			timer.Stop()
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("follow the serving certificate: %w", err)
			}
			return nil
		case <-timer.C():
		}
	}
}

func (m *Mounted) warnIfOverdue() {
	c, err := m.GetCertificate(nil)
	if err == nil && isOverdue(c.Leaf, m.clock.Now()) {
		m.log.Error(nil, "nobody has renewed the serving certificate: look at the Jobs that make it; when it has expired the API server calls nobody",
			"notAfter", c.Leaf.NotAfter.Format(time.RFC3339))
	}
}
