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
)

// Keys of the Secret. FormatKey holds Format; the authorities lie as pairs of
// PEM blocks (certificate, key), oldest first. BundleKey repeats the
// certificates for people and probes; it is never read back.
const (
	FormatKey      = "format"
	AuthoritiesKey = "authorities.pem"
	ServingCertKey = "tls.crt"
	ServingKeyKey  = "tls.key"
	BundleKey      = "ca.crt"

	// Format names this layout and its version.
	Format = "deviceshare-webhook-certificates 1"
)

// maxAuthorities bounds what a Secret can make us parse; rotation never leaves
// more than three.
const maxAuthorities = 16

// ErrForeign says that a Secret holds something that this version did not
// write. It is never overwritten.
var ErrForeign = errors.New("the Secret was not written by this webhook")

// Encode writes the state as Secret data.
func Encode(s State) (map[string][]byte, error) {
	var authorities bytes.Buffer
	for i, a := range s.Authorities {
		key, err := keyPEM(a.Key)
		if err != nil {
			return nil, fmt.Errorf("encode authority %d: %w", i, err)
		}
		authorities.Write(certificatePEM(a.Certificate))
		authorities.Write(key)
	}
	data := map[string][]byte{
		FormatKey:      []byte(Format),
		AuthoritiesKey: authorities.Bytes(),
		BundleKey:      Bundle(s),
	}
	if s.Serving != nil {
		key, err := keyPEM(s.Serving.Key)
		if err != nil {
			return nil, fmt.Errorf("encode serving certificate: %w", err)
		}
		data[ServingCertKey] = certificatePEM(s.Serving.Certificate)
		data[ServingKeyKey] = key
	}
	return data, nil
}

// Decode reads Secret data. No data at all is the zero state. Data of another
// writer or version is an error that wraps ErrForeign; any other error means
// that our own data is damaged.
func Decode(data map[string][]byte) (State, error) {
	if len(data) == 0 {
		return State{}, nil
	}
	if got := string(data[FormatKey]); got != Format {
		return State{}, fmt.Errorf("%w: %s is %.60q, want %q", ErrForeign, FormatKey, got, Format)
	}
	var s State
	rest := data[AuthoritiesKey]
	for len(bytes.TrimSpace(rest)) > 0 {
		var pair Pair
		var err error
		if pair, rest, err = decodePair(rest); err != nil {
			return State{}, fmt.Errorf("%s: authority %d: %w", AuthoritiesKey, len(s.Authorities), err)
		}
		if s.Authorities = append(s.Authorities, pair); len(s.Authorities) > maxAuthorities {
			return State{}, fmt.Errorf("%s: more than %d authorities", AuthoritiesKey, maxAuthorities)
		}
	}
	if len(data[ServingCertKey]) == 0 && len(data[ServingKeyKey]) == 0 {
		return s, nil
	}
	text := append(append([]byte(nil), data[ServingCertKey]...), data[ServingKeyKey]...)
	pair, rest, err := decodePair(text)
	if err != nil {
		return State{}, fmt.Errorf("%s and %s: %w", ServingCertKey, ServingKeyKey, err)
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return State{}, fmt.Errorf("%s and %s: more than one certificate and one key", ServingCertKey, ServingKeyKey)
	}
	s.Serving = &pair
	return s, nil
}

// Bundle is the PEM of every authority: what clients have to trust.
func Bundle(s State) []byte {
	var out bytes.Buffer
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
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return Pair{}, nil, errors.New("want a CERTIFICATE block")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Pair{}, nil, fmt.Errorf("parse certificate: %w", err)
	}
	block, rest = pem.Decode(rest)
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
