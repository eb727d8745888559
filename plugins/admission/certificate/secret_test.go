// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/x509"
	"errors"
	"maps"
	"testing"
	"time"
)

// encoded are the data of both Secrets.
func encoded(t testing.TB, s State) (authorities, serving map[string][]byte) {
	t.Helper()
	authorities, err := EncodeAuthorities(s)
	if err != nil {
		t.Fatal(err)
	}
	if serving, err = EncodeServing(s); err != nil {
		t.Fatal(err)
	}
	return authorities, serving
}

func decoded(authorities, serving map[string][]byte) (State, error) {
	pairs, err := DecodeAuthorities(authorities)
	if err != nil {
		return State{}, err
	}
	served, bundle, err := DecodeServing(serving)
	if err != nil {
		return State{}, err
	}
	return newState(pairs, served, bundle), nil
}

// sample has two authorities with keys, the first of which servers could read, and one without.
func sample(t testing.TB) State {
	t.Helper()
	s, _, err := Renew(State{}, epoch, hosts, DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	if s, _, err = Renew(s, epoch.Add(250*day), hosts, DefaultPolicy()); err != nil {
		t.Fatal(err)
	}
	lost, err := newAuthority(epoch.Add(200*day), DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	s.Authorities[0].Shared = true
	s.Retired = []*x509.Certificate{lost.Certificate}
	return s
}

func TestTheSecretsAreReadBackAsTheyWereWritten(t *testing.T) {
	want := sample(t)
	a, b := encoded(t, want)
	got, err := decoded(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Authorities) != 2 || got.Serving == nil || len(got.Retired) != 1 || !got.Retired[0].Equal(want.Retired[0]) {
		t.Fatalf("got %d authorities, %d retired, serving %v", len(got.Authorities), len(got.Retired), got.Serving)
	}
	for i := range got.Authorities {
		if !got.Authorities[i].Key.Equal(want.Authorities[i].Key) {
			t.Errorf("authority %d came back with another key", i)
		}
		if got.Authorities[i].Shared != want.Authorities[i].Shared {
			t.Errorf("authority %d: shared %v", i, got.Authorities[i].Shared)
		}
	}
	againA, againB := encoded(t, got)
	if !maps.EqualFunc(againA, a, bytes.Equal) || !maps.EqualFunc(againB, b, bytes.Equal) {
		t.Error("encoding what was read gives another text")
	}
	if plan := Due(got, epoch.Add(250*day+time.Minute), hosts, DefaultPolicy()); !plan.IsEmpty() {
		t.Errorf("after a round trip %+v is due", plan)
	}
}

func TestTheServersSecretHasNoKeyOfAnAuthority(t *testing.T) {
	s := sample(t)
	_, serving := encoded(t, s)
	for _, a := range s.Authorities {
		key, err := keyPEM(a.Key)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range serving {
			if bytes.Contains(data, key) {
				t.Errorf("%s has the key of an authority", name)
			}
		}
	}
	if n := bytes.Count(serving[ServingKeyKey], []byte("PRIVATE KEY-----")); n != 2 {
		t.Errorf("%s has %d lines of private keys, want those of one", ServingKeyKey, n)
	}
}

func TestEmptySecretsAreTheZeroState(t *testing.T) {
	if s, err := decoded(nil, map[string][]byte{}); err != nil || s.Serving != nil || len(s.Authorities) != 0 || len(s.Retired) != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestDamagedSecretsAreToldFromForeignOnes(t *testing.T) {
	otherAuthorities, otherServing := encoded(t, sample(t))
	type data = map[string][]byte
	for name, tt := range map[string]struct {
		change  func(authorities, serving data)
		foreign bool
	}{
		"no format":                       {func(a, _ data) { delete(a, FormatKey) }, true},
		"a later format":                  {func(a, _ data) { a[FormatKey] = []byte("deviceshare-webhook-certificates 2") }, true},
		"somebody's TLS Secret":           {func(_, s data) { delete(s, FormatKey) }, true},
		"no serving key":                  {func(_, s data) { delete(s, ServingKeyKey) }, false},
		"no serving certificate":          {func(_, s data) { delete(s, ServingCertKey) }, false},
		"another's serving key":           {func(_, s data) { s[ServingKeyKey] = otherServing[ServingKeyKey] }, false},
		"two serving pairs":               {func(_, s data) { s[ServingKeyKey] = append(s[ServingKeyKey], otherAuthorities[AuthoritiesKey]...) }, false},
		"garbage for authorities":         {func(a, _ data) { a[AuthoritiesKey] = []byte("garbage") }, false},
		"a cut authority":                 {func(a, _ data) { a[AuthoritiesKey] = a[AuthoritiesKey][:200] }, false},
		"a hundred authorities":           {func(a, _ data) { a[AuthoritiesKey] = bytes.Repeat(a[AuthoritiesKey], 50) }, false},
		"a hundred authorities in bundle": {func(_, s data) { s[BundleKey] = bytes.Repeat(s[BundleKey], 50) }, false},
		"garbage for a bundle":            {func(_, s data) { s[BundleKey] = []byte("garbage") }, false},
		"a server for an authority": {func(a, s data) {
			a[AuthoritiesKey] = append(append([]byte{}, s[ServingCertKey]...), s[ServingKeyKey]...)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			authorities, serving := encoded(t, sample(t))
			tt.change(authorities, serving)
			_, err := decoded(authorities, serving)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if errors.Is(err, ErrForeign) != tt.foreign {
				t.Errorf("foreign=%v expected: %v", tt.foreign, err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	a, s := encoded(f, sample(f))
	f.Add(a[FormatKey], a[AuthoritiesKey], a[OwnKey], s[ServingCertKey], s[ServingKeyKey], s[BundleKey])
	f.Add([]byte(Format), []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{}, []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, format, authorities, own, cert, key, bundle []byte) {
		state, err := decoded(map[string][]byte{FormatKey: format, AuthoritiesKey: authorities, OwnKey: own},
			map[string][]byte{FormatKey: format, ServingCertKey: cert, ServingKeyKey: key, BundleKey: bundle})
		if err != nil {
			return
		}
		again, err := decoded(encoded(t, state))
		if err != nil || len(again.Authorities) != len(state.Authorities) || len(again.Retired) != len(state.Retired) {
			t.Errorf("what was read cannot be written and read again: %v", err)
		}
	})
}
