// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const authoritiesName, servingName = "authorities", "serving"

// bundles is what API servers see: the bundle that was published last.
type bundles struct {
	mu   sync.Mutex
	last []byte
	err  error
}

func (b *bundles) Publish(_ context.Context, bundle []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.last = bundle
	return nil
}

func (b *bundles) get() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

func (b *bundles) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func newTestInstaller(t *testing.T, c client.Client, clock *testingclock.FakeClock, publisher Publisher) *Installer {
	t.Helper()
	i, err := NewInstaller(Options{Client: c, Namespace: "ns", Authorities: authoritiesName, Serving: servingName,
		Hosts: hosts, Policy: DefaultPolicy(), Clock: clock, Publisher: publisher, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func mustSync(t *testing.T, i *Installer) State {
	t.Helper()
	s, err := i.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// chartSecrets are the two Secrets as the chart creates them, with data.
func chartSecrets(authorities, serving map[string][]byte) []client.Object {
	named := func(name string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: data}
	}
	return []client.Object{named(authoritiesName, authorities), named(servingName, serving)}
}

func secretOf(t *testing.T, c client.Client, name string) map[string][]byte {
	t.Helper()
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: name}, secret); err != nil {
		t.Fatal(err)
	}
	return secret.Data
}

func asObjects(secrets []client.Object) client.Client {
	return fake.NewClientBuilder().WithObjects(secrets...).Build()
}

func TestJobsThatStartTogetherAgreeOnOneAuthority(t *testing.T) {
	for range 20 {
		clock := testingclock.NewFakeClock(epoch)
		c := asObjects(chartSecrets(nil, nil))
		var seen bundles
		var wg sync.WaitGroup
		for range 3 {
			i := newTestInstaller(t, c, clock, &seen)
			wg.Go(func() {
				if _, err := i.Sync(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := verify(secretOf(t, c, servingName), seen.get(), epoch); err != nil {
			t.Errorf("what is served: %v", err)
		}
		if n := strings.Count(string(secretOf(t, c, authoritiesName)[AuthoritiesKey]), "BEGIN CERTIFICATE"); n != 1 {
			t.Errorf("%d authorities", n)
		}
	}
}

// rival changes a Secret between another installer's read and write, times times.
type rival struct {
	client.Client
	times int
}

func (r *rival) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if r.times > 0 {
		r.times--
		theirs := &corev1.Secret{}
		if err := r.Get(ctx, client.ObjectKeyFromObject(o), theirs); err != nil {
			return err
		}
		theirs.Labels = map[string]string{"touched": strings.Repeat("x", r.times%60)}
		if err := r.Client.Update(ctx, theirs); err != nil {
			return err
		}
	}
	return r.Client.Update(ctx, o, opts...)
}

func TestALostRaceForTheSecretIsRepeatedAndEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		lost int
		ok   bool
	}{
		"lost once":      {1, true},
		"lost endlessly": {1000, false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(epoch)
			r := &rival{Client: asObjects(chartSecrets(nil, nil))}
			var seen bundles
			i := newTestInstaller(t, r, clock, &seen)
			mustSync(t, i)
			clock.Step(70 * day)
			r.times = tt.lost
			if _, err := i.Sync(t.Context()); (err == nil) != tt.ok {
				t.Errorf("Sync: %v", err)
			}
			if err := verify(secretOf(t, r, servingName), seen.get(), clock.Now()); err != nil {
				t.Errorf("the certificate served afterwards is not trusted: %v", err)
			}
		})
	}
}

func TestForeignSecretsAreLeftAloneAndDamagedOnesAreReplaced(t *testing.T) {
	foreign := map[string][]byte{"tls.crt": []byte("somebody's")}
	damaged := map[string][]byte{FormatKey: []byte(Format), AuthoritiesKey: []byte("?"), ServingCertKey: []byte("?")}
	for name, tt := range map[string]struct {
		authorities, serving map[string][]byte
		ok                   bool
	}{
		"foreign authorities": {foreign, nil, false},
		"foreign serving":     {nil, foreign, false},
		"damaged authorities": {damaged, nil, true},
		"damaged serving":     {nil, damaged, true},
		"both empty":          {nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := asObjects(chartSecrets(tt.authorities, tt.serving))
			var seen bundles
			i := newTestInstaller(t, c, testingclock.NewFakeClock(epoch), &seen)
			_, err := i.Sync(t.Context())
			if (err == nil) != tt.ok {
				t.Fatalf("Sync: %v", err)
			}
			if !tt.ok {
				if !errors.Is(err, ErrForeign) || seen.get() != nil {
					t.Errorf("%v; published %q", err, seen.get())
				}
				return
			}
			if err := verify(secretOf(t, c, servingName), seen.get(), epoch); err != nil {
				t.Error(err)
			}
		})
	}
}

// oneSecret is how versions before kept everything in the one Secret that servers read.
func oneSecret(t *testing.T, s State) map[string][]byte {
	t.Helper()
	authorities, serving := encoded(t, s)
	delete(authorities, OwnKey)
	for _, key := range []string{ServingCertKey, ServingKeyKey, BundleKey} {
		authorities[key] = serving[key]
	}
	return authorities
}

// After an upgrade servers of both versions serve: the one with the certificate that it made
// itself. And it may be taken back.
func TestAnUpgradeFromServersThatKeptTheKeyEndsNobodysTrust(t *testing.T) {
	before, _ := mustRenew(t, State{}, epoch, hosts)
	old, oldBundle := oneSecret(t, before), Bundle(before)
	clock := testingclock.NewFakeClock(epoch.Add(10 * day))
	c := asObjects(chartSecrets(old, nil))
	var seen bundles
	i := newTestInstaller(t, c, clock, &seen)
	mustSync(t, i)
	for who, served := range map[string]map[string][]byte{"the old": old, "the new": secretOf(t, c, servingName)} {
		for which, bundle := range map[string][]byte{"old": oldBundle, "new": seen.get()} {
			if err := verify(served, bundle, clock.Now()); err != nil {
				t.Errorf("a client with the %s bundle refuses %s server: %v", which, who, err)
			}
		}
	}
	if got := secretOf(t, c, authoritiesName); got[ServingKeyKey] != nil || string(got[FormatKey]) != Format {
		t.Errorf("a version that is taken back finds %q of format %q", got[ServingKeyKey], got[FormatKey])
	}
	// The key that servers could read is worth nothing two days later.
	for range 9 {
		clock.Step(6 * time.Hour)
		mustSync(t, i)
		if err := verify(secretOf(t, c, servingName), seen.get(), clock.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := verify(old, seen.get(), clock.Now()); err == nil {
		t.Error("what a stolen key signs is trusted for good")
	}
}

func TestInstallTriesAgainUntilItWorksAndSaysAtTheEndWhatFailed(t *testing.T) {
	clock := testingclock.NewFakeClock(epoch)
	seen := bundles{err: errors.New("the chart's objects are not there")}
	i := newTestInstaller(t, asObjects(chartSecrets(nil, nil)), clock, &seen)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.Install(ctx) }()
	waiting := func() {
		for !clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
	}
	waiting()
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("got %v", err)
	}
	go func() { done <- i.Install(t.Context()) }()
	waiting()
	seen.set(nil)
	clock.Step(retryEvery)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
