// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/x509"
	"errors"
	"maps"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// sample has everything that a state can have.
func sample(t testing.TB) State {
	t.Helper()
	return State{Serving: made(t, 0, hosts...), Next: made(t, 61*day, hosts...), Published: epoch.Add(61 * day),
		Retired: []*x509.Certificate{made(t, -60*day, hosts...).Leaf}}
}

func encoded(t testing.TB, s State) map[string][]byte {
	t.Helper()
	data, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheSecretIsReadBackAsItWasWritten(t *testing.T) {
	want := sample(t)
	got, err := decodeState(encoded(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if !got.Serving.Leaf.Equal(want.Serving.Leaf) || !got.Next.Leaf.Equal(want.Next.Leaf) || !got.Published.Equal(want.Published) ||
		len(got.Retired) != 1 || !got.Retired[0].Equal(want.Retired[0]) {
		t.Errorf("got %+v", got)
	}
	if !maps.EqualFunc(encoded(t, got), encoded(t, want), bytes.Equal) {
		t.Error("encoding what was read gives another text")
	}
}

// Whoever runs during a handover, and after it, publishes the same text: a change of it starts a
// handover.
func TestAHandoverEndsWithTheBundleThatItBeganWith(t *testing.T) {
	s := sample(t)
	if !bytes.Equal(encoded(t, s)[bundleKey], encoded(t, s.serveNext())[bundleKey]) {
		t.Error("the bundle changes when the next certificate is served")
	}
}

func TestAnEmptySecretIsTheZeroState(t *testing.T) {
	for _, data := range []map[string][]byte{nil, {}} {
		if s, err := decodeState(data); err != nil || s.Serving != nil || s.Next != nil || len(s.Retired) != 0 {
			t.Errorf("got %+v, %v", s, err)
		}
	}
}

func TestDamagedPartsAreToldFromForeignSecretsAndTheRestIsRead(t *testing.T) {
	other := encoded(t, sample(t))
	rsaCert, rsaKey, err := cert.GenerateSelfSignedCertKey(hosts[0], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	type data = map[string][]byte
	for name, tt := range map[string]struct {
		change                                    func(d data)
		foreign, noServing, noNext, noRetired, no bool
	}{
		"no format":                 {change: func(d data) { delete(d, formatKey) }, foreign: true},
		"a later format":            {change: func(d data) { d[formatKey] = []byte("deviceshare-webhook-certificates 2") }, foreign: true},
		"no serving key":            {change: func(d data) { delete(d, ServingKeyKey) }, noServing: true},
		"no serving certificate":    {change: func(d data) { delete(d, ServingCertKey) }, noServing: true},
		"another's serving key":     {change: func(d data) { d[ServingKeyKey] = other[ServingKeyKey] }, noServing: true},
		"a key that is not written": {change: func(d data) { d[ServingCertKey], d[ServingKeyKey] = rsaCert, rsaKey }, noServing: true},
		"garbage for the next":      {change: func(d data) { d[nextCertKey] = []byte("garbage") }, noNext: true},
		"a cut next key":            {change: func(d data) { d[nextKeyKey] = d[nextKeyKey][:40] }, noNext: true},
		"garbage for a bundle":      {change: func(d data) { d[bundleKey] = []byte("garbage") }, noRetired: true},
		"a time that is none":       {change: func(d data) { d[publishedKey] = []byte("yesterday") }, no: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := encoded(t, sample(t))
			tt.change(d)
			s, err := decodeState(d)
			if err == nil || errors.Is(err, ErrForeign) != tt.foreign {
				t.Fatalf("foreign=%v expected: %v", tt.foreign, err)
			}
			if tt.foreign {
				return
			}
			if (s.Serving == nil) != tt.noServing || (s.Next == nil) != tt.noNext || s.Published.IsZero() != tt.no {
				t.Errorf("read %+v", s)
			}
			// What cannot be served any more is still trusted.
			if len(s.trustedCertificates()) < 2 && !tt.noRetired {
				t.Errorf("%d certificates are trusted", len(s.trustedCertificates()))
			}
			encoded(t, s)
		})
	}
}

func FuzzDecode(f *testing.F) {
	d := encoded(f, sample(f))
	f.Add(d[formatKey], d[ServingCertKey], d[ServingKeyKey], d[nextCertKey], d[nextKeyKey], d[publishedKey], d[bundleKey])
	f.Add([]byte(format), []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{}, []byte{}, []byte{}, []byte("0001-01-01T00:00:00Z"), []byte{})
	f.Fuzz(func(t *testing.T, format, crt, key, nextCrt, nextKey, published, bundle []byte) {
		s, err := decodeState(map[string][]byte{formatKey: format, ServingCertKey: crt, ServingKeyKey: key,
			nextCertKey: nextCrt, nextKeyKey: nextKey, publishedKey: published, bundleKey: bundle})
		if errors.Is(err, ErrForeign) {
			return
		}
		written := encoded(t, s.withoutExpired(time.Time{}))
		again, err := decodeState(written)
		if err != nil && len(s.trustedCertificates()) > 0 || !maps.EqualFunc(written, encoded(t, again), bytes.Equal) {
			t.Errorf("what was read cannot be written and read again: %v", err)
		}
	})
}
