// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
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

var secretName = types.NamespacedName{Namespace: "ns", Name: "webhook-certificates"}

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

func newTestKeeper(t *testing.T, c client.Client, clock *testingclock.FakeClock, publisher Publisher) *Keeper {
	t.Helper()
	k, err := NewKeeper(Options{Client: c, Secret: secretName, Hosts: hosts, Policy: DefaultPolicy(),
		Clock: clock, Publisher: publisher, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mustSync(t *testing.T, k *Keeper) {
	t.Helper()
	if err := k.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// trusts verifies what k serves as a client with the given bundle would.
func trusts(k *Keeper, bundle []byte, now time.Time) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	c, err := k.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return err
	}
	_, err = c.Leaf.Verify(x509.VerifyOptions{DNSName: hosts[0], Roots: pool, CurrentTime: now})
	return err
}

func TestClientsWithAnOldBundleKeepWorkingThroughManyRotations(t *testing.T) {
	clock := testingclock.NewFakeClock(epoch)
	c := fake.NewFakeClient()
	var seen bundles
	quick, lazy := newTestKeeper(t, c, clock, &seen), newTestKeeper(t, c, clock, &seen)
	// The defaults, thirty times as fast, but with the real handover.
	fast := Policy{AuthorityLife: 12 * day, ServingLife: 3 * day, Handover: time.Hour, Skew: 5 * time.Minute}
	quick.o.Policy, lazy.o.Policy = fast, fast
	mustSync(t, quick)
	mustSync(t, lazy)
	served := map[string]bool{}
	oldBundle := seen.get()
	// Steps of 50 minutes: an API server that is 50 minutes behind, and a
	// replica that looks only then. Both are within the handover of one hour.
	for step := range 36 * 24 * 60 / 50 {
		clock.Step(50 * time.Minute)
		now := clock.Now()
		mustSync(t, quick)
		for who, k := range map[string]*Keeper{"quick": quick, "lazy": lazy} {
			for which, bundle := range map[string][]byte{"old": oldBundle, "new": seen.get()} {
				if err := trusts(k, bundle, now); err != nil {
					t.Fatalf("step %d, %s: a client with the %s bundle refuses the %s replica: %v", step, now, which, who, err)
				}
			}
		}
		oldBundle = seen.get()
		if step%2 == 1 {
			mustSync(t, lazy)
		}
		served[quick.current.Load().Leaf.SerialNumber.String()] = true
	}
	if len(served) < 15 || len(served) > 40 {
		t.Errorf("%d serving certificates in three lives of an authority, want one every two thirds of a life and one for each new authority", len(served))
	}
}

func TestTwoReplicasThatStartTogetherAgreeOnOneSecret(t *testing.T) {
	for range 20 {
		clock := testingclock.NewFakeClock(epoch)
		c := fake.NewFakeClient()
		var seen bundles
		keepers := []*Keeper{newTestKeeper(t, c, clock, &seen), newTestKeeper(t, c, clock, &seen),
			newTestKeeper(t, c, clock, &seen)}
		var wg sync.WaitGroup
		for _, k := range keepers {
			wg.Go(func() {
				if err := k.Sync(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i, k := range keepers {
			if !k.current.Load().Leaf.Equal(keepers[0].current.Load().Leaf) {
				t.Errorf("replica %d serves a certificate of its own", i)
			}
			if err := trusts(k, seen.get(), epoch); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		}
	}
}

// rival renews the Secret between another replica's read and write, times times.
type rival struct {
	client.Client
	clock *testingclock.FakeClock
	times int
}

func (r *rival) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if r.times > 0 {
		r.times--
		theirs := &corev1.Secret{}
		if err := r.Get(ctx, secretName, theirs); err != nil {
			return err
		}
		theirs.Labels = map[string]string{"touched": r.clock.Now().String()}
		r.clock.Step(time.Second)
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
			r := &rival{Client: fake.NewFakeClient(), clock: clock}
			var seen bundles
			k := newTestKeeper(t, r, clock, &seen)
			mustSync(t, k)
			clock.Step(70 * day)
			r.times = tt.lost
			if err := k.Sync(t.Context()); (err == nil) != tt.ok {
				t.Errorf("Sync: %v", err)
			}
			if err := trusts(k, seen.get(), clock.Now()); err != nil {
				t.Errorf("the certificate served afterwards is not trusted: %v", err)
			}
		})
	}
}

func TestANewCertificateIsServedOnlyWhenItsAuthorityIsPublished(t *testing.T) {
	clock := testingclock.NewFakeClock(epoch)
	seen := bundles{err: errors.New("apiserver not up yet")}
	k := newTestKeeper(t, fake.NewFakeClient(), clock, &seen)
	if k.Sync(t.Context()) == nil || k.current.Load() != nil {
		t.Error("a certificate is served before its authority was ever published")
	}
	seen.err = nil
	mustSync(t, k)
	<-k.Serving()
	first := k.current.Load()

	seen.err = errors.New("apiserver down")
	clock.Step(61 * day)
	if k.Sync(t.Context()) == nil {
		t.Error("a bundle that could not be published went unreported")
	}
	if k.current.Load() != first {
		t.Error("the certificate was switched though its authority could not be published")
	}
	clock.Step(30 * day)
	if k.Ready(nil) == nil {
		t.Error("ready with an expired certificate")
	}
	if k.Sync(t.Context()) == nil {
		t.Error("a bundle that could not be published went unreported")
	}
	if k.current.Load() == first || k.Ready(nil) != nil {
		t.Error("an expired certificate was kept though a valid one is there")
	}
}

func TestNothingIsServedBeforeTheFirstSync(t *testing.T) {
	k := newTestKeeper(t, fake.NewFakeClient(), testingclock.NewFakeClock(epoch), &bundles{})
	if _, err := k.GetCertificate(nil); err == nil {
		t.Error("a certificate out of nowhere")
	}
	if k.Ready(nil) == nil {
		t.Error("ready without a certificate")
	}
}

func TestAForeignSecretIsLeftAloneAndADamagedOneIsReplaced(t *testing.T) {
	foreign := map[string][]byte{"tls.crt": []byte("somebody's")}
	damaged := map[string][]byte{FormatKey: []byte(Format), AuthoritiesKey: []byte("?")}
	for name, tt := range map[string]struct {
		data map[string][]byte
		ok   bool
	}{
		"foreign": {foreign, false},
		"damaged": {damaged, true},
		"empty":   {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretName.Namespace, Name: secretName.Name}, Data: tt.data}
			c := fake.NewFakeClient(secret)
			var seen bundles
			k := newTestKeeper(t, c, testingclock.NewFakeClock(epoch), &seen)
			if err := k.Sync(t.Context()); (err == nil) != tt.ok {
				t.Fatalf("Sync: %v", err)
			}
			after := &corev1.Secret{}
			if err := c.Get(t.Context(), secretName, after); err != nil {
				t.Fatal(err)
			}
			if _, err := Decode(after.Data); (err == nil) != tt.ok {
				t.Errorf("the Secret afterwards: %v", err)
			}
			if !tt.ok && string(after.Data["tls.crt"]) != "somebody's" {
				t.Error("a foreign Secret was overwritten")
			}
		})
	}
}

func TestStartRotatesByTheClockAndEndsWithItsContext(t *testing.T) {
	clock := testingclock.NewFakeClock(epoch)
	var mu sync.Mutex
	var ends []time.Time
	served := make(chan struct{}, 10)
	k, err := NewKeeper(Options{Client: fake.NewFakeClient(), Secret: secretName, Hosts: hosts, Policy: DefaultPolicy(),
		Clock: clock, Publisher: &bundles{}, Log: logr.Discard(),
		OnServe: func(end time.Time) { mu.Lock(); ends = append(ends, end); mu.Unlock(); served <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Start(ctx) }()
	<-served
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clock.Step(61 * day)
	<-served
	k.Poke()
	k.Poke()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Start: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ends) != 2 || !ends[1].After(ends[0]) {
		t.Errorf("served certificates that end at %v, want two, the second later", ends)
	}
	if k.NeedLeaderElection() {
		t.Error("every replica must keep its own certificate")
	}
}
