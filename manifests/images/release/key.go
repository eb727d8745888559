// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
)

// SigningKey signs the files of a release.
type SigningKey struct{ private crypto.Signer }

// ReadKey reads a private key without a passphrase from a PEM file: ECDSA of curve P-256, or
// Ed25519. These are the keys that both openssl and cosign can verify with.
func ReadKey(path string) (SigningKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return SigningKey{}, fmt.Errorf("read the signing key: %w", err)
	}
	private, err := parseKey(text)
	if err != nil {
		return SigningKey{}, fmt.Errorf("read the signing key %s: %w", path, err)
	}
	return SigningKey{private}, nil
}

func parseKey(text []byte) (crypto.Signer, error) {
	block, rest := pem.Decode(text)
	if block != nil && block.Type == "EC PARAMETERS" { // as `openssl ecparam -genkey` begins
		block, _ = pem.Decode(rest)
	}
	var key any
	var err error
	switch {
	case block == nil:
		return nil, errors.New("it has no key in PEM")
	case strings.HasPrefix(block.Type, "ENCRYPTED ") || block.Headers["DEK-Info"] != "":
		return nil, errors.New("it is encrypted: want a private key without a passphrase")
	case block.Type == "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case block.Type == "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("it is a %s: want a PRIVATE KEY", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("decode the private key: %w", err)
	}
	switch key := key.(type) {
	case ed25519.PrivateKey:
		return key, nil
	case *ecdsa.PrivateKey:
		if key.Curve == elliptic.P256() {
			return key, nil
		}
	}
	return nil, errors.New("want an Ed25519 key, or an ECDSA key of curve P-256")
}

// Sign returns the signature that `openssl pkeyutl -sign -rawin` makes: with ECDSA, in ASN.1 and of
// the text's SHA-256. The same key and text always give the same bytes.
func (k SigningKey) Sign(text []byte) ([]byte, error) {
	digest, hash := text, crypto.Hash(0)
	if _, ok := k.private.(*ecdsa.PrivateKey); ok {
		sum := sha256.Sum256(text)
		digest, hash = sum[:], crypto.SHA256
	}
	signature, err := k.private.Sign(nil, digest, hash) // without randomness: RFC 6979
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return signature, nil
}
