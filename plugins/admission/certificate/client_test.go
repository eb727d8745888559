// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

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

// mortal is the API server of an installer that is killed after some writes: negative is never.
type mortal struct {
	client.Client
	lives int
}

func (m *mortal) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if m.lives == 0 {
		return errors.New("killed")
	}
	m.lives--
	return m.Client.Update(ctx, o, opts...)
}

// years is a cluster in which time passes.
type years struct {
	t      *testing.T
	random *rand.Rand
	clock  *testingclock.FakeClock
	api    *mortal
	seen   bundles
	// served is what a server has read, and trusted what an API server has.
	served  map[string][]byte
	trusted []byte
	// newest is what is in the Secret since changed.
	newest  string
	changed time.Time
	renewed int
}

// pass lets up to half a day pass, now and then weeks without a Job. A server has read its
// certificate half a day after it was written at the latest, mostly much sooner.
func (y *years) pass() {
	pause := time.Duration(y.random.Int64N(int64(12 * time.Hour)))
	if y.random.IntN(40) == 0 {
		pause = time.Duration(y.random.Int64N(int64(20 * day)))
	}
	y.clock.Step(pause)
	if y.random.IntN(3) > 0 || y.clock.Since(y.changed) > 12*time.Hour {
		y.served = secretOf(y.t, y.api, servingName)
	}
}

// certify runs a Job, which may be killed before it publishes or after each of its writes, and then
// mostly another one.
func (y *years) certify() {
	if y.random.IntN(4) == 0 {
		y.seen.set(errors.New("killed"))
	}
	y.api.lives = y.random.IntN(4)
	_, _ = newTestInstaller(y.t, y.api, y.clock, &y.seen).Sync(y.t.Context())
	y.seen.set(nil)
	y.api.lives = -1
	if y.random.IntN(3) > 0 {
		mustSync(y.t, newTestInstaller(y.t, y.api, y.clock, &y.seen))
	}
	if now := string(secretOf(y.t, y.api, servingName)[ServingCertKey]); now != y.newest {
		y.newest, y.changed, y.renewed = now, y.clock.Now(), y.renewed+1
	}
}

// requireTrust calls the server, and one that has just read its certificate, from API servers with
// the bundle of before and with the new one.
func (y *years) requireTrust(seed uint64) {
	for whose, served := range map[string]map[string][]byte{"an old": y.served, "a new": secretOf(y.t, y.api, servingName)} {
		for which, bundle := range map[string][]byte{"an old": y.trusted, "a new": y.seen.get()} {
			if err := verify(served, bundle, y.clock.Now()); err != nil {
				y.t.Fatalf("seed %d, day %.2f: an API server with %s bundle refuses %s certificate: %v",
					seed, y.clock.Since(epoch).Hours()/24, which, whose, err)
			}
		}
	}
	y.clock.Step(10 * time.Minute)
	y.trusted = y.seen.get()
}

// Over three years Jobs come at random times, are killed after each of their writes, or do not
// come for weeks. No API server ever refuses a server.
func TestNoAPIServerEverRefusesAServer(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		y := &years{t: t, random: rand.New(rand.NewPCG(seed, 0)), clock: testingclock.NewFakeClock(epoch),
			api: &mortal{asObjects(chartSecrets(nil, nil)), -1}, changed: epoch}
		mustSync(t, newTestInstaller(t, y.api, y.clock, &y.seen))
		y.served, y.trusted = secretOf(t, y.api, servingName), y.seen.get()
		y.newest = string(y.served[ServingCertKey])
		for y.clock.Since(epoch) < 1100*day {
			y.pass()
			y.certify()
			y.requireTrust(seed)
		}
		if y.renewed < 15 {
			t.Errorf("seed %d: %d new certificates in three years", seed, y.renewed)
		}
	}
}
