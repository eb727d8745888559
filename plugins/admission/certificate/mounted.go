// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// warnEvery is how often a certificate is logged that should have been renewed.
const warnEvery = time.Hour

// Mounted serves the certificate of two files, tls.crt and tls.key, which the kubelet keeps as
// they are in a Secret. It takes a renewed one without a restart. If both cannot be read, or do not
// belong together, it goes on with what it has. Its methods may be called from several goroutines.
type Mounted struct {
	*certwatcher.CertWatcher
	clock clock.PassiveClock
	log   logr.Logger
}

// NewMounted reads the certificate of a directory.
func NewMounted(dir string, clock clock.PassiveClock, log logr.Logger) (*Mounted, error) {
	watcher, err := certwatcher.New(filepath.Join(dir, ServingCertKey), filepath.Join(dir, ServingKeyKey))
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate in %s: %w", dir, err)
	}
	return &Mounted{watcher, clock, log}, nil
}

// NotAfter returns when the certificate that is served expires.
func (m *Mounted) NotAfter() time.Time { return m.currentCertificate().Leaf.NotAfter }

func (m *Mounted) currentCertificate() *tls.Certificate {
	c, _ := m.GetCertificate(nil) // there is one from the beginning
	return c
}

// Ready is a readiness check: ready when a certificate that is valid is served.
func (m *Mounted) Ready(*http.Request) error {
	return requireServable(m.currentCertificate(), m.clock.Now(), []string{""})
}

// Start follows the files until ctx ends.
func (m *Mounted) Start(ctx context.Context) error {
	go wait.UntilWithContext(ctx, m.warnIfOverdue, warnEvery)
	if err := m.CertWatcher.Start(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("follow the serving certificate: %w", err)
	}
	return nil
}

// warnIfOverdue logs that half of the time has passed in which the certificate should have been
// renewed.
func (m *Mounted) warnIfOverdue(context.Context) {
	if c := m.currentCertificate().Leaf; !m.clock.Now().Before(partOfLife(c, 5, 6)) {
		m.log.Error(nil, "nobody has renewed the serving certificate: look at the Jobs that make it; when it has expired the API server calls nobody",
			"notAfter", c.NotAfter.Format(time.RFC3339))
	}
}
