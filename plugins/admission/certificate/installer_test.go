// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var secretKey = client.ObjectKey{Namespace: "ns", Name: "serving"}

// installed is an API server with what the chart makes: the Secret with data, and configurations of
// three webhooks.
func installed(data map[string][]byte) client.Client {
	hook := func(name string) admissionv1.MutatingWebhook {
		return admissionv1.MutatingWebhook{Name: name, ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ns", Name: "webhook"}}}
	}
	return fake.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}, Data: data},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "deviceshare"}, Webhooks: []admissionv1.MutatingWebhook{hook("mutate")}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "deviceshare"}, Webhooks: []admissionv1.ValidatingWebhook{
			{Name: "validate", ClientConfig: hook("").ClientConfig}, {Name: "guard", ClientConfig: hook("").ClientConfig}}},
	).Build()
}

// bundlesOf is what API servers trust, by the names of webhooks.
func bundlesOf(t *testing.T, c client.Client) map[string][]byte {
	t.Helper()
	m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for _, o := range []client.Object{m, v} {
		if err := c.Get(t.Context(), client.ObjectKey{Name: "deviceshare"}, o); err != nil {
			t.Fatal(err)
		}
	}
	return map[string][]byte{"mutate": m.Webhooks[0].ClientConfig.CABundle,
		"validate": v.Webhooks[0].ClientConfig.CABundle, "guard": v.Webhooks[1].ClientConfig.CABundle}
}

func secretOf(t *testing.T, c client.Client) map[string][]byte {
	t.Helper()
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), secretKey, secret); err != nil {
		t.Fatal(err)
	}
	return secret.Data
}

// requireTrusted calls what is served from an API server.
func requireTrusted(t *testing.T, c client.Client, now time.Time) {
	t.Helper()
	for hook, bundle := range bundlesOf(t, c) {
		if err := verify(secretOf(t, c), bundle, now); err != nil {
			t.Errorf("webhook %s: %v", hook, err)
		}
	}
}

func newTestInstaller(c client.Client, clock *testingclock.FakeClock) *Installer {
	return &Installer{Client: c, Secret: secretKey, Configurations: Configurations(false), Hosts: hosts, Clock: clock, Log: logr.Discard()}
}

func mustSync(t *testing.T, i *Installer) {
	t.Helper()
	if err := i.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestJobsThatStartTogetherAgreeOnOneCertificate(t *testing.T) {
	for range 10 {
		clock := testingclock.NewFakeClock(epoch)
		c := installed(nil)
		var wg sync.WaitGroup
		for range 3 {
			i := newTestInstaller(c, clock)
			wg.Go(func() {
				err := i.Sync(t.Context())
				for apierrors.IsConflict(err) {
					err = i.Sync(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		requireTrusted(t, c, epoch)
		if n := strings.Count(string(bundlesOf(t, c)["guard"]), "BEGIN CERTIFICATE"); n != 1 {
			t.Errorf("%d certificates are trusted", n)
		}
	}
}

// A Job that is overtaken at any of its writes is told so, and what the other one has done holds.
func TestAJobThatIsOvertakenChangesNothingOfTheOther(t *testing.T) {
	for _, age := range []time.Duration{0, 61 * day, 61*day + handover, 1000 * day} {
		for write := range 4 {
			clock := testingclock.NewFakeClock(epoch)
			c := installed(nil)
			for at := time.Duration(0); at < min(age, 61*day+handover); at = map[time.Duration]time.Duration{0: 61 * day, 61 * day: age}[at] {
				clock.SetTime(epoch.Add(at))
				mustSync(t, newTestInstaller(c, clock))
			}
			clock.SetTime(epoch.Add(age))
			var theirs map[string][]byte
			m := &mortal{Client: c, lives: write, overtake: func() {
				mustSync(t, newTestInstaller(c, clock))
				theirs = secretOf(t, c)
			}}
			if err := newTestInstaller(m, clock).Sync(t.Context()); theirs != nil && !apierrors.IsConflict(err) {
				t.Errorf("after %s, write %d: %v", age, write, err)
			}
			mustSync(t, newTestInstaller(c, clock))
			requireTrusted(t, c, clock.Now())
			if theirs != nil && string(secretOf(t, c)[ServingCertKey]) != string(theirs[ServingCertKey]) {
				t.Errorf("after %s, write %d: the other's certificate is gone", age, write)
			}
		}
	}
}

func TestForeignSecretsAreLeftAloneAndDamagedOnesAreReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		data map[string][]byte
		ok   bool
	}{
		"foreign": {map[string][]byte{"tls.crt": []byte("somebody's")}, false},
		"damaged": {map[string][]byte{formatKey: []byte(format), ServingCertKey: []byte("?"), nextKeyKey: []byte("?"), bundleKey: []byte("?")}, true},
		"empty":   {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := installed(tt.data)
			err := newTestInstaller(c, testingclock.NewFakeClock(epoch)).Sync(t.Context())
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, ErrForeign) {
				t.Fatalf("Sync: %v", err)
			}
			if tt.ok {
				requireTrusted(t, c, epoch)
			} else if bundlesOf(t, c)["guard"] != nil || string(secretOf(t, c)["tls.crt"]) != "somebody's" {
				t.Error("somebody's Secret was used")
			}
		})
	}
}

// Configurations that were made again trust nobody: a handover that was going on begins again, and
// the next certificate is not served to clients that have just learned of it.
func TestAHandoverBeginsAgainWhenTheConfigurationsAreMadeAgain(t *testing.T) {
	clock := testingclock.NewFakeClock(epoch)
	c := installed(nil)
	i := newTestInstaller(c, clock)
	mustSync(t, i)
	clock.Step(61 * day)
	mustSync(t, i)
	first := secretOf(t, c)[ServingCertKey]
	v := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "deviceshare"}, v); err != nil {
		t.Fatal(err)
	}
	v.Webhooks[1].ClientConfig.CABundle = nil
	if err := c.Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		after   time.Duration
		renewed bool
	}{{2 * handover, false}, {handover - time.Minute, false}, {time.Minute, true}} {
		clock.Step(tt.after)
		mustSync(t, i)
		requireTrusted(t, c, clock.Now())
		if renewed := string(secretOf(t, c)[ServingCertKey]) != string(first); renewed != tt.renewed {
			t.Errorf("%s later: another certificate is served: %v", tt.after, renewed)
		}
	}
}

// A Job on a node whose clock is weeks ahead publishes a certificate. Others do not wait for that
// day.
func TestAHandoverDoesNotWaitForAWrongClock(t *testing.T) {
	clock := testingclock.NewFakeClock(epoch)
	c := installed(nil)
	mustSync(t, newTestInstaller(c, clock))
	clock.SetTime(epoch.Add(61 * day))
	if err := newTestInstaller(&mortal{Client: c, lives: 1}, clock).Sync(t.Context()); err == nil {
		t.Fatal("not killed")
	}
	first := secretOf(t, c)[ServingCertKey]
	for _, at := range []time.Duration{81 * day, 62 * day, 62*day + handover} {
		if string(secretOf(t, c)[ServingCertKey]) != string(first) {
			t.Errorf("before %s another certificate is served", at)
		}
		clock.SetTime(epoch.Add(at))
		mustSync(t, newTestInstaller(c, clock))
	}
	requireTrusted(t, c, clock.Now())
	if string(secretOf(t, c)[ServingCertKey]) == string(first) {
		t.Error("the handover waits")
	}
}

// issuedByCA is the Secret of versions that had a CA: the certificate is signed by it, and the
// bundle has the CA alone.
func issuedByCA(t *testing.T) (data map[string][]byte, bundle []byte) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if parent == nil {
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	ca, caKey := issue(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotBefore: epoch, NotAfter: epoch.Add(365 * day),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	leaf, key := issue(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "webhook"}, NotBefore: epoch, NotAfter: epoch.Add(90 * day),
		DNSNames: hosts, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca, caKey)
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err = cert.EncodeCertificates(ca)
	if err != nil {
		t.Fatal(err)
	}
	crt, err := cert.EncodeCertificates(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"format": []byte("deviceshare-webhook-certificates 1"), "tls.crt": crt, "tls.key": text, "ca.crt": bundle}, bundle
}

func TestAnUpgradeFromAVersionWithACAEndsNobodysTrust(t *testing.T) {
	old, oldBundle := issuedByCA(t)
	clock := testingclock.NewFakeClock(epoch.Add(10 * day))
	c := installed(old)
	i := newTestInstaller(c, clock)
	for clock.Since(epoch) < 80*day {
		mustSync(t, i)
		requireTrusted(t, c, clock.Now())
		if err := verify(old, bundlesOf(t, c)["guard"], clock.Now()); err != nil {
			t.Fatalf("an API server refuses a server with the certificate of before: %v", err)
		}
		if clock.Since(epoch) < 60*day {
			if err := verify(secretOf(t, c), oldBundle, clock.Now()); err != nil {
				t.Fatalf("an API server that has not seen the new bundle refuses the server: %v", err)
			}
		}
		clock.Step(18 * time.Hour)
	}
	if string(secretOf(t, c)["tls.crt"]) == string(old["tls.crt"]) {
		t.Error("the certificate was not renewed")
	}
}

func TestInstallTriesAgainUntilItWorksAndSaysAtTheEndWhatFailed(t *testing.T) {
	clock := testingclock.NewFakeClock(epoch)
	early := fake.NewClientBuilder().Build()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newTestInstaller(early, clock).Install(ctx); err == nil || !strings.Contains(err.Error(), "which the chart makes") {
		t.Errorf("got %v", err)
	}
	c := installed(nil)
	if err := newTestInstaller(&mortal{Client: c, lives: 1, overtake: func() {
		if err := newTestInstaller(c, clock).Sync(t.Context()); err != nil {
			t.Error(err)
		}
	}}, clock).Install(t.Context()); err != nil {
		t.Error(err)
	}
	requireTrusted(t, c, epoch)
}
