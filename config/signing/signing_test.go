// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deviceshare/config/signing"
	"deviceshare/sharing/wire"
)

var what = wire.Signed{Owner: "uid", Node: "n1", Placement: `{"version":1}`}

// good is the first result of a call that cannot fail here.
func good[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func private(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func privatePEM(key any) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: good(x509.MarshalPKCS8PrivateKey(key))})
}

func publicPEM(key any) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: good(x509.MarshalPKIXPublicKey(key))})
}

func certificatePEM(key crypto.Signer) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "deviceshare"}, NotAfter: time.Unix(1, 0)}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: good(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))})
}

func write(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhatASchedulerSignsANodeAccepts(t *testing.T) {
	dir := t.TempDir()
	file, keys := filepath.Join(dir, "signing.key"), filepath.Join(dir, "keys")
	if err := os.Mkdir(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, file, privatePEM(private(1)))
	for form, text := range map[string][]byte{"a public key": publicPEM(private(1).Public()), "a certificate, which has expired": certificatePEM(private(1))} {
		write(t, filepath.Join(keys, "key.pem"), text)
		signature, err := signing.Signer{Path: file}.Sign(what)
		if err != nil {
			t.Fatal(err)
		}
		if err := (signing.Keys{Directory: keys}).Require(signature, what); err != nil {
			t.Errorf("%s: %v", form, err)
		}
	}
}

// The steps of docs/signatures.md, one by one: at no time is a placement refused that was signed by
// the key before or the key after, until the one before is taken away.
func TestARotationRefusesNothing(t *testing.T) {
	dir := t.TempDir()
	file, keys := filepath.Join(dir, "signing.key"), filepath.Join(dir, "keys")
	if err := os.Mkdir(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	signer, node := signing.Signer{Path: file}, signing.Keys{Directory: keys}
	accepted := func(step, signature string, want bool) {
		t.Helper()
		err := node.Require(signature, what)
		var unsigned *signing.Unsigned
		if want && err != nil || !want && !errors.As(err, &unsigned) {
			t.Errorf("%s: %v", step, err)
		}
	}
	write(t, file, privatePEM(private(1)))
	write(t, filepath.Join(keys, "1.pem"), publicPEM(private(1).Public()))
	before := signedBy(signer)
	accepted("before", before, true)
	write(t, filepath.Join(keys, "2.pem"), publicPEM(private(2).Public()))
	accepted("both keys are known", before, true)
	write(t, file, privatePEM(private(2)))
	after := signedBy(signer)
	if before == after {
		t.Fatal("the new key does not sign")
	}
	accepted("the new key signs: the old placement", before, true)
	accepted("the new key signs: the new placement", after, true)
	if err := os.Remove(filepath.Join(keys, "1.pem")); err != nil {
		t.Fatal(err)
	}
	accepted("the old key is gone: the old placement", before, false)
	accepted("the old key is gone: the new placement", after, true)
}

func signedBy(s signing.Signer) string {
	return good(s.Sign(what))
}

func TestWhyAPlacementIsNotSigned(t *testing.T) {
	key, _ := wire.NewSigningKey(private(1).Seed())
	signature := good(wire.EncodeSignature(key.Sign(what)))
	known := []ed25519.PublicKey{private(1).Public().(ed25519.PublicKey)}
	other := what
	other.Owner = "another"
	legacy := what
	legacy.Placement = ""
	for name, c := range map[string]struct {
		keys      []ed25519.PublicKey
		signature string
		what      wire.Signed
		why       string
	}{
		"no signature":                 {known, "", what, "no annotation volcano.sh/vgpu-placement-signature"},
		"a placement of legacy text":   {known, signature, legacy, "no annotation volcano.sh/vgpu-placement,"},
		"something else":               {known, "made-up", what, "placement signature"},
		"the signature of another":     {known, signature, other, "of another pod, another node or another placement"},
		"a key that nobody here knows": {nil, signature, what, "does not know the key " + wire.KeyIDOf(known[0]).String() + ", it knows none"},
	} {
		err := signing.Judge(c.keys, c.signature, c.what)
		var unsigned *signing.Unsigned
		if !errors.As(err, &unsigned) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: the answer is %v, want %q", name, err, c.why)
		}
	}
	if err := signing.Judge(known, signature, what); err != nil {
		t.Error(err)
	}
}

func TestMistakesInKeys(t *testing.T) {
	elliptical := good(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	for name, c := range map[string]struct {
		text []byte
		why  string
	}{
		"nothing":           {nil, "want the PEM of a PRIVATE KEY"},
		"a public key":      {publicPEM(private(1).Public()), "want the PEM of a PRIVATE KEY"},
		"another algorithm": {privatePEM(elliptical), "is not an Ed25519 key"},
		"other bytes":       {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), "decode the private key"},
	} {
		if _, err := signing.ParseKey(c.text); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("private key, %s: %v, want %q", name, err, c.why)
		}
	}
	one := publicPEM(private(1).Public())
	for name, c := range map[string]struct {
		text []byte
		why  string
	}{
		"no PEM":               {[]byte("x"), "key 1: want the PEM"},
		"no PEM after one":     {append(bytes.Clone(one), 'x'), "key 2: want the PEM"},
		"a private key":        {privatePEM(private(1)), "key 1: is a PRIVATE KEY"},
		"another algorithm":    {publicPEM(elliptical.Public()), "key 1: is not an Ed25519 key"},
		"a certificate of one": {certificatePEM(elliptical), "key 1: is not an Ed25519 key"},
		"other bytes":          {pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}), "decode the public key"},
		"no certificate":       {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "decode the certificate"},
	} {
		if _, err := signing.ParsePublicKeys(c.text); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("public keys, %s: %v, want %q", name, err, c.why)
		}
	}
	if keys, err := signing.ParsePublicKeys(append(bytes.Clone(one), certificatePEM(private(2))...)); err != nil || len(keys) != 2 {
		t.Errorf("two keys are read as %v (%v)", keys, err)
	}
}

func TestKeysThatCannotBeReadAcceptNothing(t *testing.T) {
	dir := t.TempDir()
	key, _ := wire.NewSigningKey(private(1).Seed())
	signature := good(wire.EncodeSignature(key.Sign(what)))
	write(t, filepath.Join(dir, ".hidden"), publicPEM(private(1).Public()))
	var unsigned *signing.Unsigned
	if err := (signing.Keys{Directory: dir}).Require(signature, what); !errors.As(err, &unsigned) {
		t.Errorf("a directory without keys says %v", err)
	}
	write(t, filepath.Join(dir, "1.pem"), publicPEM(private(1).Public()))
	if err := (signing.Keys{Directory: dir}).Require(signature, what); err != nil {
		t.Error(err)
	}
	missing := filepath.Join(dir, "no", "such")
	if (signing.Signer{Path: missing}).Check() == nil {
		t.Error("a key that is not there is read")
	}
	for name, broken := range map[string]string{"a directory that is not there": missing, "a file that is no key": dir} {
		write(t, filepath.Join(dir, "2.pem"), []byte("x"))
		if err := (signing.Keys{Directory: broken}).Require(signature, what); err == nil || errors.As(err, &unsigned) {
			t.Errorf("%s says %v of a placement", name, err)
		}
	}
}
