// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"errors"
	"maps"
	"testing"
	"time"
)

func encoded(t testing.TB, s State) map[string][]byte {
	t.Helper()
	data, err := Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sample(t testing.TB) State {
	t.Helper()
	s, _, err := Renew(State{}, epoch, hosts, DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	if s, _, err = Renew(s, epoch.Add(250*day), hosts, DefaultPolicy()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheSecretIsReadBackAsItWasWritten(t *testing.T) {
	want := sample(t)
	got, err := Decode(encoded(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Authorities) != 2 || got.Serving == nil {
		t.Fatalf("got %d authorities, serving %v", len(got.Authorities), got.Serving)
	}
	for i := range got.Authorities {
		if !got.Authorities[i].Key.Equal(want.Authorities[i].Key) {
			t.Errorf("authority %d came back with another key", i)
		}
	}
	again := encoded(t, got)
	if !maps.EqualFunc(again, encoded(t, want), bytes.Equal) {
		t.Error("encoding what was read gives another text")
	}
	if plan := Due(got, epoch.Add(250*day+time.Minute), hosts, DefaultPolicy()); !plan.IsEmpty() {
		t.Errorf("after a round trip %+v is due", plan)
	}
}

func TestAnEmptySecretIsTheZeroState(t *testing.T) {
	if s, err := Decode(nil); err != nil || s.Serving != nil || len(s.Authorities) != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestDamagedSecretsAreToldFromForeignOnes(t *testing.T) {
	good := sample(t)
	other := sample(t)
	otherData := encoded(t, other)
	tests := map[string]struct {
		change  func(map[string][]byte)
		foreign bool
	}{
		"no format":               {func(d map[string][]byte) { delete(d, FormatKey) }, true},
		"a later format":          {func(d map[string][]byte) { d[FormatKey] = []byte("deviceshare-webhook-certificates 2") }, true},
		"somebody's TLS Secret":   {func(d map[string][]byte) { delete(d, FormatKey); delete(d, AuthoritiesKey) }, true},
		"no serving key":          {func(d map[string][]byte) { delete(d, ServingKeyKey) }, false},
		"no serving certificate":  {func(d map[string][]byte) { delete(d, ServingCertKey) }, false},
		"another's serving key":   {func(d map[string][]byte) { d[ServingKeyKey] = otherData[ServingKeyKey] }, false},
		"two serving pairs":       {func(d map[string][]byte) { d[ServingKeyKey] = append(d[ServingKeyKey], d[AuthoritiesKey]...) }, false},
		"garbage for authorities": {func(d map[string][]byte) { d[AuthoritiesKey] = []byte("garbage") }, false},
		"a cut authority":         {func(d map[string][]byte) { d[AuthoritiesKey] = d[AuthoritiesKey][:200] }, false},
		"a hundred authorities": {func(d map[string][]byte) {
			d[AuthoritiesKey] = bytes.Repeat(d[AuthoritiesKey], 50)
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			data := encoded(t, good)
			tt.change(data)
			s, err := Decode(data)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if errors.Is(err, ErrForeign) != tt.foreign {
				t.Errorf("foreign=%v expected: %v", tt.foreign, err)
			}
			if s.Serving != nil || s.Authorities != nil {
				t.Error("it was half read")
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	data := encoded(f, sample(f))
	f.Add(data[FormatKey], data[AuthoritiesKey], data[ServingCertKey], data[ServingKeyKey])
	f.Add([]byte(Format), []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, format, authorities, cert, key []byte) {
		s, err := Decode(map[string][]byte{
			FormatKey: format, AuthoritiesKey: authorities, ServingCertKey: cert, ServingKeyKey: key})
		if err != nil {
			return
		}
		again, err := Decode(encoded(t, s))
		if err != nil || len(again.Authorities) != len(s.Authorities) {
			t.Errorf("what was read cannot be written and read again: %v", err)
		}
	})
}
