// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the two Secrets. FormatKey, in both, holds Format. Of the authorities' Secret,
// AuthoritiesKey holds pairs of PEM blocks (certificate, key), the newest last, and OwnKey the
// serial numbers of those that this version made, one a line: versions that kept everything in
// this one Secret, where servers read it, do not write that. The serving Secret has the keys of
// the type kubernetes.io/tls, and in BundleKey what clients have to trust.
const (
	FormatKey      = "format"
	AuthoritiesKey = "authorities.pem"
	OwnKey         = "own"
	ServingCertKey = corev1.TLSCertKey
	ServingKeyKey  = corev1.TLSPrivateKeyKey
	BundleKey      = corev1.ServiceAccountRootCAKey

	// Format names this layout and its version.
	Format = "deviceshare-webhook-certificates 1"
)

// maxAuthorities bounds what a Secret can make us parse; rotation never leaves
// more than three.
const maxAuthorities = 16

// ErrForeign says that a Secret holds something that no version of this program
// wrote. It is never overwritten.
var ErrForeign = errors.New("the Secret was not written by this webhook")

// EncodeAuthorities writes the authorities as data of their Secret.
func EncodeAuthorities(s State) (map[string][]byte, error) {
	var authorities, own bytes.Buffer
	for i, a := range s.Authorities {
		key, err := keyPEM(a.Key)
		if err != nil {
			return nil, fmt.Errorf("encode authority %d: %w", i, err)
		}
		authorities.Write(certificatePEM(a.Certificate))
		authorities.Write(key)
		if !a.Shared {
			fmt.Fprintln(&own, a.Certificate.SerialNumber.Text(16))
		}
	}
	return map[string][]byte{FormatKey: []byte(Format), AuthoritiesKey: authorities.Bytes(), OwnKey: own.Bytes()}, nil
}

// EncodeServing writes the serving certificate, which must not be nil, as data of its Secret.
func EncodeServing(s State) (map[string][]byte, error) {
	key, err := keyPEM(s.Serving.Key)
	if err != nil {
		return nil, fmt.Errorf("encode serving certificate: %w", err)
	}
	return map[string][]byte{
		FormatKey:      []byte(Format),
		ServingCertKey: certificatePEM(s.Serving.Certificate),
		ServingKeyKey:  key,
		BundleKey:      Bundle(s),
	}, nil
}

// DecodeAuthorities reads the authorities from data of their Secret. No data at all is none.
// Data of another writer or version is an error that wraps ErrForeign; any other error means
// that our own data is damaged. What is of a serving certificate there, which versions with
// one Secret wrote, is not read.
func DecodeAuthorities(data map[string][]byte) ([]Pair, error) {
	if err := requireFormat(data); err != nil || len(data) == 0 {
		return nil, err
	}
	own := strings.Fields(string(data[OwnKey]))
	var out []Pair
	for rest := data[AuthoritiesKey]; len(bytes.TrimSpace(rest)) > 0; {
		var pair Pair
		var err error
		if pair, rest, err = decodePair(rest); err != nil {
			return nil, fmt.Errorf("%s: authority %d: %w", AuthoritiesKey, len(out), err)
		}
		if !pair.Certificate.IsCA {
			return nil, fmt.Errorf("%s: authority %d: its certificate is none of a CA", AuthoritiesKey, len(out))
		}
		pair.Shared = !slices.Contains(own, pair.Certificate.SerialNumber.Text(16))
		if out = append(out, pair); len(out) > maxAuthorities {
			return nil, fmt.Errorf("%s: more than %d authorities", AuthoritiesKey, maxAuthorities)
		}
	}
	return out, nil
}

// DecodeServing reads the serving certificate, nil if there is none, and the authorities that
// clients were told to trust with it. Errors are those of DecodeAuthorities.
func DecodeServing(data map[string][]byte) (serving *Pair, bundle []*x509.Certificate, err error) {
	if err := requireFormat(data); err != nil || len(data) == 0 {
		return nil, nil, err
	}
	text := append(append([]byte(nil), data[ServingCertKey]...), data[ServingKeyKey]...)
	pair, rest, err := decodePair(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s and %s: %w", ServingCertKey, ServingKeyKey, err)
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, nil, fmt.Errorf("%s and %s: more than one certificate and one key", ServingCertKey, ServingKeyKey)
	}
	for rest := data[BundleKey]; len(bytes.TrimSpace(rest)) > 0; {
		var authority *x509.Certificate
		if authority, rest, err = decodeCertificate(rest); err != nil {
			return nil, nil, fmt.Errorf("%s: authority %d: %w", BundleKey, len(bundle), err)
		}
		if bundle = append(bundle, authority); len(bundle) > maxAuthorities {
			return nil, nil, fmt.Errorf("%s: more than %d authorities", BundleKey, maxAuthorities)
		}
	}
	return &pair, bundle, nil
}

func requireFormat(data map[string][]byte) error {
	if got := string(data[FormatKey]); len(data) > 0 && got != Format {
		return fmt.Errorf("%w: %s is %.60q, want %q", ErrForeign, FormatKey, got, Format)
	}
	return nil
}

// newState puts together what the two Secrets hold: an authority that clients were told to trust,
// and that is none of authorities, has lost its key. The bundle is written when it was published.
func newState(authorities []Pair, serving *Pair, bundle []*x509.Certificate) State {
	isRetired := func(c *x509.Certificate) bool {
		return c.IsCA && !slices.ContainsFunc(authorities, func(a Pair) bool { return a.Certificate.Equal(c) })
	}
	s := State{Authorities: authorities, Serving: serving}
	for _, c := range bundle {
		if isRetired(c) {
			s.Retired = append(s.Retired, c)
		}
	}
	for i := range authorities {
		a := &authorities[i]
		a.Unpublished = serving != nil && !slices.ContainsFunc(bundle, a.Certificate.Equal)
	}
	return s
}

// Bundle is the PEM of every authority: what clients have to trust.
func Bundle(s State) []byte {
	var out bytes.Buffer
	for _, c := range s.Retired {
		out.Write(certificatePEM(c))
	}
	for _, a := range s.Authorities {
		out.Write(certificatePEM(a.Certificate))
	}
	return out.Bytes()
}

// TLS returns the pair in the form a server takes.
func (p Pair) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.Certificate.Raw}, PrivateKey: p.Key, Leaf: p.Certificate}
}

func certificatePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func keyPEM(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("marshal key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// decodePair reads one certificate and its key, and refuses a key that is not
// the certificate's.
func decodePair(text []byte) (Pair, []byte, error) {
	cert, rest, err := decodeCertificate(text)
	if err != nil {
		return Pair{}, nil, err
	}
	block, rest := pem.Decode(rest)
	if block == nil || block.Type != "EC PRIVATE KEY" {
		return Pair{}, nil, errors.New("want an EC PRIVATE KEY block")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return Pair{}, nil, fmt.Errorf("parse key: %w", err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return Pair{}, nil, errors.New("the key is not the certificate's")
	}
	return Pair{Certificate: cert, Key: key}, rest, nil
}

func decodeCertificate(text []byte) (*x509.Certificate, []byte, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, nil, errors.New("want a CERTIFICATE block")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parse certificate: %w", err)
	}
	return c, rest, nil
}
