// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"
)

var (
	epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts = []string{"webhook.ns.svc", "127.0.0.1"}
)

const day = 24 * time.Hour

func mustRenew(t *testing.T, s State, now time.Time, hosts []string) (State, Plan) {
	t.Helper()
	next, plan, err := Renew(s, now, hosts, DefaultPolicy())
	if err != nil {
		t.Fatalf("Renew at %s: %v", now, err)
	}
	return next, plan
}

func TestWhatIsDue(t *testing.T) {
	fresh, _ := mustRenew(t, State{}, epoch, hosts)
	twoAuthorities, _ := mustRenew(t, fresh, epoch.Add(250*day), hosts)
	stranger, _ := mustRenew(t, State{}, epoch, hosts)
	shared := State{Authorities: []Pair{fresh.Authorities[0]}, Serving: fresh.Serving}
	shared.Authorities[0].Shared = true
	replaced, _ := mustRenew(t, shared, epoch.Add(day), hosts)
	moved, _ := mustRenew(t, replaced, epoch.Add(day+time.Hour), hosts)
	lost := State{Retired: []*x509.Certificate{fresh.Authorities[0].Certificate}, Serving: fresh.Serving}
	found, _ := mustRenew(t, lost, epoch.Add(day), hosts)
	foundAgain, _ := mustRenew(t, found, epoch.Add(day+time.Hour), hosts)

	unpublished := State{Authorities: slices.Clone(twoAuthorities.Authorities), Serving: twoAuthorities.Serving}
	unpublished.Authorities[1].Unpublished = true

	tests := map[string]struct {
		state   State
		at      time.Duration
		hosts   []string
		add     bool
		reissue bool
		drop    int
	}{
		"the first start makes everything":                     {state: State{}, hosts: hosts, add: true, reissue: true},
		"a fresh state needs nothing":                          {state: fresh, hosts: hosts},
		"just before two thirds of its life it needs nothing":  {state: fresh, at: 59 * day, hosts: hosts},
		"the serving certificate is renewed at two thirds":     {state: fresh, at: 61 * day, hosts: hosts, reissue: true},
		"a host that the certificate lacks renews it":          {state: fresh, hosts: []string{"other.ns.svc"}, reissue: true},
		"an address that the certificate lacks renews it":      {state: fresh, hosts: []string{"127.0.0.2"}, reissue: true},
		"fewer hosts than the certificate names are fine":      {state: fresh, hosts: hosts[:1]},
		"an authority past two thirds gets a successor":        {state: fresh, at: 244 * day, hosts: hosts, add: true, reissue: true},
		"a new authority does not sign during the handover":    {state: twoAuthorities, at: 250*day + 59*time.Minute, hosts: hosts},
		"a new authority signs after the handover":             {state: twoAuthorities, at: 250*day + time.Hour, hosts: hosts, reissue: true},
		"one that a killed Job has made may be published soon": {state: unpublished, at: 250*day + 29*time.Minute, hosts: hosts},
		"and is replaced later, since nobody knows it":         {state: unpublished, at: 250*day + 30*time.Minute, hosts: hosts, add: true, drop: 1},
		"an expired authority is dropped":                      {state: twoAuthorities, at: 366 * day, hosts: hosts, reissue: true, drop: 1},
		"when all have expired it starts anew":                 {state: fresh, at: 2000 * day, hosts: hosts, add: true, reissue: true, drop: 1},
		"a certificate of an unknown authority is replaced": {
			state: State{Authorities: fresh.Authorities, Serving: stranger.Serving}, hosts: hosts, reissue: true},
		"an authority whose key servers could read gets a successor": {state: shared, at: day, hosts: hosts, add: true},
		"which does not sign during the handover":                    {state: replaced, at: day + 59*time.Minute, hosts: hosts},
		"and signs after it":                                         {state: replaced, at: day + time.Hour, hosts: hosts, reissue: true},
		"the old one stays trusted for a day":                        {state: moved, at: 2*day + 59*time.Minute, hosts: hosts},
		"and is dropped after it":                                    {state: moved, at: 2*day + time.Hour, hosts: hosts, drop: 1},
		"a lost authority is replaced":                               {state: lost, at: day, hosts: hosts, add: true},
		"what it signed is served during the handover":               {state: found, at: day + 59*time.Minute, hosts: hosts},
		"and not after it":                                           {state: found, at: day + time.Hour, hosts: hosts, reissue: true},
		"it stays trusted for a day":                                 {state: foundAgain, at: 2*day + 59*time.Minute, hosts: hosts},
		"and is dropped like others":                                 {state: foundAgain, at: 2*day + time.Hour, hosts: hosts, drop: 1},
		"what is valid only later is none": {
			state: fresh, at: -day, hosts: hosts, add: true, reissue: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan := Due(tt.state, epoch.Add(tt.at), tt.hosts, DefaultPolicy())
			if (plan.AddAuthority != NotDue) != tt.add || (plan.Reissue != NotDue) != tt.reissue || plan.Drop != tt.drop {
				t.Errorf("got %+v, want add=%v reissue=%v drop=%d", plan, tt.add, tt.reissue, tt.drop)
			}
		})
	}
}

func TestRenewDoesNotChangeItsArgument(t *testing.T) {
	before, _ := mustRenew(t, State{}, epoch, hosts)
	authorities, serving := before.Authorities, before.Serving
	mustRenew(t, before, epoch.Add(300*day), hosts)
	if len(before.Authorities) != len(authorities) || before.Authorities[0] != authorities[0] || before.Serving != serving {
		t.Error("Renew changed the state it was given")
	}
}

func TestRenewSettlesInOneStep(t *testing.T) {
	state := State{}
	for hour := range 24 * 365 {
		now := epoch.Add(time.Duration(hour*5) * time.Hour)
		if Due(state, now, hosts, DefaultPolicy()).IsEmpty() {
			continue
		}
		state, _ = mustRenew(t, state, now, hosts)
		if plan := Due(state, now, hosts, DefaultPolicy()); !plan.IsEmpty() {
			t.Fatalf("at %s, after a renewal, there is still %+v to do", now, plan)
		}
	}
}

func TestAServingCertificateNeverOutlivesItsAuthority(t *testing.T) {
	state, _ := mustRenew(t, State{}, epoch, hosts)
	state, _ = mustRenew(t, state, epoch.Add(364*day), hosts)
	if state.Serving.Certificate.NotAfter.After(state.Authorities[0].Certificate.NotAfter) {
		t.Error("the serving certificate is valid for longer than the authority that signed it")
	}
}

func TestBadPoliciesAndHostsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Policy){
		"no life of authorities":         func(p *Policy) { p.AuthorityLife = 0 },
		"no life of serving":             func(p *Policy) { p.ServingLife = -day },
		"a negative skew":                func(p *Policy) { p.Skew = -1 },
		"a negative retirement":          func(p *Policy) { p.Retire = -1 },
		"a handover longer than renewal": func(p *Policy) { p.Handover = p.AuthorityLife },
	} {
		t.Run(name, func(t *testing.T) {
			p := DefaultPolicy()
			change(&p)
			if p.Validate() == nil {
				t.Errorf("%+v was accepted", p)
			}
			if _, err := NewInstaller(Options{Policy: p, Hosts: hosts}); err == nil {
				t.Error("an installer was made with it")
			}
		})
	}
	if _, _, err := Renew(State{}, epoch, nil, DefaultPolicy()); err == nil {
		t.Error("Renew without a host was accepted")
	}
	if _, err := NewInstaller(Options{Policy: DefaultPolicy()}); err == nil {
		t.Error("an installer without a host was made")
	}
}
