// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"
)

var (
	epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts = []string{"webhook.ns.svc", "webhook.ns"}
)

const day = 24 * time.Hour

// made is a certificate that a run made some time after the epoch.
func made(t testing.TB, after time.Duration, hosts ...string) *tls.Certificate {
	t.Helper()
	c, err := newCertificate(epoch.Add(after), hosts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatIsDue(t *testing.T) {
	first := made(t, 0, hosts...)
	second := made(t, 61*day, hosts...)
	other := made(t, 0, "other.ns.svc")
	at := func(after time.Duration) time.Time { return epoch.Add(after) }
	handing := State{Serving: first, Next: second, Published: at(61 * day)}
	unpublished := State{Serving: first, Next: second}
	for name, tt := range map[string]struct {
		state State
		at    time.Duration
		want  Action
	}{
		"the first run makes one":                        {State{}, 0, Make},
		"which is served at once":                        {State{Next: first}, 0, Serve},
		"a new certificate needs nothing":                {State{Serving: first}, 0, Keep},
		"just before two thirds of its life neither":     {State{Serving: first}, 59 * day, Keep},
		"at two thirds another one is made":              {State{Serving: first}, 61 * day, Make},
		"which is not served during the handover":        {handing, 61*day + handover - time.Second, Keep},
		"and served after it":                            {handing, 61*day + handover, Serve},
		"one that a killed run has not published waits":  {unpublished, 70 * day, Keep},
		"however long, as long as another one is valid":  {unpublished, 89 * day, Keep},
		"when that has expired it is served":             {unpublished, 91 * day, Serve},
		"one that was published in the future waits":     {State{Serving: first, Next: second, Published: at(80 * day)}, 70 * day, Keep},
		"one that expired before it was served is none":  {handing, 400 * day, Make},
		"one that is valid only later is none":           {State{Serving: second}, 0, Make},
		"a next one that is valid only later is none":    {State{Serving: first, Next: second}, 60 * day, Make},
		"a name that the certificate lacks makes one":    {State{Serving: other}, 0, Make},
		"a name that the next one lacks makes another":   {State{Serving: first, Next: other, Published: at(0)}, 62 * day, Make},
		"an expired certificate is replaced":             {State{Serving: first}, 91 * day, Make},
		"an expired one is not waited for":               {State{Serving: first, Next: second, Published: at(91 * day)}, 91 * day, Serve},
		"nothing is made while one is handed over early": {State{Serving: first, Next: made(t, day, hosts...), Published: at(day)}, day, Keep},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := tt.state.Due(at(tt.at), hosts)
			if got != tt.want || (why == "") != (got == Keep) {
				t.Errorf("got %d (%s), want %d", got, why, tt.want)
			}
		})
	}
}

func TestAStateIsNotChangedByTheNextOne(t *testing.T) {
	first, second := made(t, 0, hosts...), made(t, 61*day, hosts...)
	retired := make([]*x509.Certificate, 1, 5)
	retired[0] = made(t, -60*day, hosts...).Leaf
	s := State{Serving: first, Next: second, Published: epoch, Retired: retired}
	before, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	if after := s.serveNext(); after.Next != nil || !after.Published.IsZero() {
		t.Errorf("served, and still handed over: %+v", after)
	}
	if after := s.withNext(made(t, 0, hosts...)); !after.Published.IsZero() {
		t.Errorf("nobody has published it, and it is known since %s", after.Published)
	}
	s.withoutExpired(epoch.Add(1000 * day))
	after, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	for key := range before {
		if !bytes.Equal(before[key], after[key]) {
			t.Errorf("%s changed", key)
		}
	}
	if retired[0] == nil || retired[:2][1] != nil {
		t.Error("a list of the state was written to")
	}
}

// A client with a clock behind by less than an hour accepts a certificate in the moment in which it
// is made.
func TestClocksMayDifferByAnHour(t *testing.T) {
	c := made(t, 0, hosts...)
	if err := requireServable(c, epoch.Add(-59*time.Minute), hosts); err != nil {
		t.Error(err)
	}
}

// Wrong clocks that take turns make certificates without end, of which clients trust a bounded
// number.
func TestWrongClocksDoNotFillTheSecret(t *testing.T) {
	s := State{}
	for i := range 100 {
		now := epoch.Add(time.Duration(i%2) * 1000 * day)
		s = s.withoutExpired(now)
		if what, _ := s.Due(now, hosts); what == Make {
			c, err := newCertificate(now, hosts)
			if err != nil {
				t.Fatal(err)
			}
			s = s.withNext(c)
		}
		if what, why := s.Due(now, hosts); what == Serve {
			s = s.serveNext()
		} else {
			t.Fatalf("turn %d: a server without a certificate that is valid waits: %s", i, why)
		}
	}
	if n := len(s.trustedCertificates()); n > mostRetired+2 {
		t.Errorf("%d certificates are trusted", n)
	}
}
