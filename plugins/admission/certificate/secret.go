// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys of the Secret. ServingCertKey and ServingKeyKey are what servers mount, bundleKey is what
// clients have to trust.
const (
	ServingCertKey = corev1.TLSCertKey
	ServingKeyKey  = corev1.TLSPrivateKeyKey

	nextCertKey  = "next.crt"
	nextKeyKey   = "next.key"
	publishedKey = "published"
	bundleKey    = corev1.ServiceAccountRootCAKey
	formatKey    = "format"

	// format names this layout and its version.
	format = "deviceshare-webhook-certificates 1"
)

// ErrForeign says that a Secret holds something that no version of this program
// wrote. It is never overwritten.
var ErrForeign = errors.New("the Secret was not written by this webhook")

func encodeState(s State) (map[string][]byte, error) {
	data := map[string][]byte{formatKey: []byte(format), bundleKey: encodeCertificates(s.trustedCertificates()...)}
	if !s.Published.IsZero() {
		data[publishedKey] = []byte(s.Published.UTC().Format(time.RFC3339))
	}
	pairs := map[string]*tls.Certificate{ServingCertKey: s.Serving, nextCertKey: s.Next}
	for certKey, keyKey := range pairKeys() {
		if pairs[certKey] == nil {
			continue
		}
		key, err := keyutil.MarshalPrivateKeyToPEM(pairs[certKey].PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", keyKey, err)
		}
		data[certKey], data[keyKey] = encodeCertificates(pairs[certKey].Leaf), key
	}
	return data, nil
}

// pairKeys returns where certificates are, and where their keys are.
func pairKeys() map[string]string {
	return map[string]string{ServingCertKey: ServingKeyKey, nextCertKey: nextKeyKey}
}

// decodeState reads data of a Secret. Data of another writer or version is an error that wraps
// ErrForeign. Any other error names the damaged parts, and the state holds the rest.
func decodeState(data map[string][]byte) (State, error) {
	if len(data) == 0 {
		return State{}, nil
	}
	if got := string(data[formatKey]); got != format {
		return State{}, fmt.Errorf("%w: %s is %.60q, want %q", ErrForeign, formatKey, got, format)
	}
	var s State
	var damage [4]error
	s.Serving, damage[0] = decodePair(data, ServingCertKey, ServingKeyKey)
	s.Next, damage[1] = decodePair(data, nextCertKey, nextKeyKey)
	if text, ok := data[publishedKey]; ok {
		if s.Published, damage[2] = time.Parse(time.RFC3339, string(text)); damage[2] != nil {
			s.Published = time.Time{}
		}
	}
	current := s.trustedCertificates()
	if text, ok := data[bundleKey]; ok {
		if s.Retired, damage[3] = cert.ParseCertsPEM(text); damage[3] != nil {
			damage[3] = fmt.Errorf("%s: %w", bundleKey, damage[3])
		}
	}
	s.Retired = slices.DeleteFunc(s.Retired, func(c *x509.Certificate) bool { return slices.ContainsFunc(current, c.Equal) })
	return s, errors.Join(damage[:]...)
}

// decodePair reads a certificate and its key; nil if there is neither.
func decodePair(data map[string][]byte, certKey, keyKey string) (*tls.Certificate, error) {
	if len(data[certKey]) == 0 && len(data[keyKey]) == 0 {
		return nil, nil
	}
	pair, err := tls.X509KeyPair(data[certKey], data[keyKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certKey, keyKey, err)
	}
	if _, ok := pair.PrivateKey.(*ecdsa.PrivateKey); !ok {
		return nil, fmt.Errorf("%s: a key of type %T, want ECDSA", keyKey, pair.PrivateKey)
	}
	return &pair, nil
}

func encodeCertificates(list ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range list {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return out
}
