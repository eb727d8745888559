// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// checkEvery is how often the Secrets and what was published are checked. If somebody
// deletes either, it is made again within this time.
const checkEvery = time.Minute

// Renewer runs an Installer all the time and serves what it makes: for a server outside of a
// cluster, which no Job provides for. Any number of replicas may run one for the same Secrets.
// Its methods may be called from several goroutines, but Sync and Start only from one.
type Renewer struct {
	installer *Installer
	onServe   func(notAfter time.Time)
	current   atomic.Pointer[tls.Certificate]
	serving   chan struct{} // closed with the first certificate
}

// NewRenewer returns a keeper for what the installer makes. onServe is told the end of the
// certificate that is served, once for each new one.
func NewRenewer(i *Installer, onServe func(notAfter time.Time)) *Renewer {
	return &Renewer{installer: i, onServe: onServe, serving: make(chan struct{})}
}

// GetCertificate serves tls.Config. Before the first successful Sync it fails,
// and the API server treats the call as failed.
func (k *Renewer) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.current.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("no serving certificate yet")
}

// Serving returns a channel that is closed as soon as there is a certificate to
// serve.
func (k *Renewer) Serving() <-chan struct{} { return k.serving }

// Ready is a readiness check: ready when a certificate that is valid is served.
func (k *Renewer) Ready(*http.Request) error {
	c, err := k.GetCertificate(nil)
	if err != nil {
		return err
	}
	return requireValid(c.Leaf, k.installer.o.Clock.Now())
}

// requireValid says why clients refuse a serving certificate.
func requireValid(c *x509.Certificate, now time.Time) error {
	if now.Before(c.NotBefore) {
		return fmt.Errorf("the serving certificate is valid from %s on", c.NotBefore.Format(time.RFC3339))
	}
	if !now.Before(c.NotAfter) {
		return fmt.Errorf("the serving certificate expired at %s", c.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// Start syncs until ctx ends. Failures are logged and retried: a webhook that
// cannot reach the API server goes on with what it has.
func (k *Renewer) Start(ctx context.Context) error {
	for {
		wait := checkEvery
		if err := k.Sync(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			k.installer.o.Log.Error(err, "keeping the webhook's certificates; trying again", "in", retryEvery.String())
			wait = retryEvery
		}
		timer := k.installer.o.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// Sync installs, and serves what is installed.
func (k *Renewer) Sync(ctx context.Context) error {
	state, err := k.installer.Sync(ctx)
	if err != nil {
		return err
	}
	k.servePair(*state.Serving)
	return nil
}

func (k *Renewer) servePair(p Pair) {
	old := k.current.Load()
	if old != nil && old.Leaf.Equal(p.Certificate) {
		return
	}
	k.current.Store(p.TLS())
	if old == nil {
		close(k.serving)
	}
	logServed(k.installer.o.Log, p.Certificate)
	k.onServe(p.Certificate.NotAfter)
}
