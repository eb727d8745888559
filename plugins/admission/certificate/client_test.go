// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// verify is a client that trusts a bundle and calls a server by each of its names.
func verify(served map[string][]byte, bundle []byte, now time.Time) error {
	pair, err := tls.X509KeyPair(served[ServingCertKey], served[ServingKeyKey])
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("nothing is trusted")
	}
	for _, host := range hosts {
		_, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		if err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

// mortal is the API server of a Job: before the write that is lives away it is overtaken by another
// Job, or killed.
type mortal struct {
	client.Client
	lives    int // negative is for ever
	overtake func()
}

func (m *mortal) write() error {
	if m.lives != 0 {
		m.lives--
		return nil
	}
	if m.overtake == nil {
		return errors.New("killed")
	}
	m.lives = -1
	m.overtake()
	return nil
}

func (m *mortal) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if err := m.write(); err != nil {
		return err
	}
	return m.Client.Update(ctx, o, opts...)
}

func (m *mortal) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if err := m.write(); err != nil {
		return err
	}
	return m.Client.Apply(ctx, o, opts...)
}

// years is a cluster in which time passes.
type years struct {
	t      *testing.T
	random *rand.Rand
	clock  *testingclock.FakeClock
	api    client.Client
	// served is what a server has read, and trusted what an API server has of each webhook.
	served  map[string][]byte
	trusted map[string][]byte
	// newest is what is in the Secret since changed.
	newest  string
	changed time.Time
	renewed int
}

// pass lets up to two days pass, now and then more than a week. Half a day after a certificate was
// written a server has read it, mostly much sooner.
func (y *years) pass() {
	pause := time.Duration(y.random.Int64N(int64(48 * time.Hour)))
	if y.random.IntN(20) == 0 {
		pause = time.Duration(y.random.Int64N(int64(9 * day)))
	}
	y.clock.Step(pause)
	if y.random.IntN(3) > 0 || y.clock.Since(y.changed) > 12*time.Hour {
		y.served = secretOf(y.t, y.api)
	}
}

// certify runs a Job, which may be killed before each of its writes, or be overtaken there by
// another Job, and then mostly another one.
func (y *years) certify() {
	m := &mortal{Client: y.api, lives: y.random.IntN(6)}
	if y.random.IntN(2) == 0 {
		m.overtake = func() {
			y.clock.Step(time.Duration(y.random.Int64N(int64(2 * time.Minute))))
			_ = newTestInstaller(&mortal{Client: y.api, lives: y.random.IntN(6)}, y.clock).Sync(y.t.Context())
		}
	}
	_ = newTestInstaller(m, y.clock).Sync(y.t.Context())
	if y.random.IntN(3) > 0 {
		mustSync(y.t, newTestInstaller(y.api, y.clock))
	}
	if now := string(secretOf(y.t, y.api)[ServingCertKey]); now != y.newest {
		y.newest, y.changed, y.renewed = now, y.clock.Now(), y.renewed+1
	}
}

// requireTrust calls the server, and one that has just read its certificate, from API servers with
// the bundles of before and with the new ones.
func (y *years) requireTrust(seed uint64) {
	current := bundlesOf(y.t, y.api)
	for whose, served := range map[string]map[string][]byte{"an old": y.served, "a new": secretOf(y.t, y.api)} {
		for which, bundles := range map[string]map[string][]byte{"an old": y.trusted, "a new": current} {
			for hook, bundle := range bundles {
				if n := bytes.Count(bundle, []byte("BEGIN CERTIFICATE")); n > 3 {
					y.t.Fatalf("seed %d: %s has %d certificates, of which nobody serves most", seed, hook, n)
				}
				if err := verify(served, bundle, y.clock.Now()); err != nil {
					y.t.Fatalf("seed %d, day %.2f: an API server with %s bundle of %s refuses %s certificate: %v",
						seed, y.clock.Since(epoch).Hours()/24, which, hook, whose, err)
				}
			}
		}
	}
	y.clock.Step(10 * time.Minute)
	y.trusted = current
}

// Over three years Jobs come at random times, are killed or overtaken at each of their writes, or
// do not come for days. No API server ever refuses a server.
func TestNoAPIServerEverRefusesAServer(t *testing.T) {
	seeds, span, least := uint64(3), 1100*day, 15
	if testing.Short() {
		seeds, span, least = 1, 400*day, 5
	}
	for seed := range seeds {
		y := &years{t: t, random: rand.New(rand.NewPCG(seed, 0)), clock: testingclock.NewFakeClock(epoch), api: installed(nil), changed: epoch}
		mustSync(t, newTestInstaller(y.api, y.clock))
		y.served, y.trusted = secretOf(t, y.api), bundlesOf(t, y.api)
		y.newest = string(y.served[ServingCertKey])
		for y.clock.Since(epoch) < span {
			y.pass()
			y.certify()
			y.requireTrust(seed)
		}
		if y.renewed < least {
			t.Errorf("seed %d: %d new certificates in %s", seed, y.renewed, span)
		}
	}
}
