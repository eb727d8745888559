// SPDX-License-Identifier: Apache-2.0

// Package signing reads the keys by which schedulers vouch for placements and nodes check that:
// package wire says what is signed. Keys are files that are mounted from a Secret and a ConfigMap.
// They are read anew each time, so that a rotation takes effect without a restart.
package signing

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"deviceshare/sharing/wire"
)

// Signer signs placements with the key in a file. It is safe for concurrent use.
type Signer struct{ Path string }

// Check reports why the key cannot be read.
func (s Signer) Check() error {
	_, err := s.readKey()
	return err
}

// Sign returns the text by which the holder of the key vouches for a placement.
func (s Signer) Sign(what wire.Signed) (string, error) {
	key, err := s.readKey()
	if err != nil {
		return "", err
	}
	return wire.EncodeSignature(key.Sign(what))
}

func (s Signer) readKey() (wire.SigningKey, error) {
	text, err := os.ReadFile(s.Path)
	if err != nil {
		return wire.SigningKey{}, fmt.Errorf("read the signing key: %w", err)
	}
	key, err := ParseKey(text)
	if err != nil {
		return wire.SigningKey{}, fmt.Errorf("read the signing key %s: %w", s.Path, err)
	}
	return key, nil
}

// Unsigned is why no scheduler with a known key vouches for a placement.
type Unsigned struct{ Why string }

// Error implements error.
func (u *Unsigned) Error() string { return "the placement is not signed by a scheduler: " + u.Why }

// Keys are the public keys in the files of a directory. They are safe for concurrent use.
type Keys struct{ Directory string }

// Require returns an error if no known key vouches for a placement by a signature: *Unsigned,
// unless the keys cannot be read.
func (k Keys) Require(signature string, what wire.Signed) error {
	keys, err := k.readDirectory()
	if err != nil {
		return err
	}
	return Judge(keys, signature, what)
}

// Judge returns *Unsigned if no key vouches for a placement by a signature.
func Judge(keys []ed25519.PublicKey, signature string, what wire.Signed) error {
	switch {
	case what.Placement == "":
		return &Unsigned{"it has no annotation " + wire.PodPlacement + ", which is what is signed"}
	case signature == "":
		return &Unsigned{"it has no annotation " + wire.PodSignature}
	}
	s, err := wire.DecodeSignature(signature)
	if err != nil {
		return &Unsigned{err.Error()}
	}
	switch s.Check(keys, what) {
	case wire.Genuine:
		return nil
	case wire.OtherText:
		return &Unsigned{"the signature is of another pod, another node or another placement"}
	}
	return &Unsigned{"this node does not know the key " + s.Key.String() + ", it knows " + formatKeyIDs(keys)}
}

func formatKeyIDs(keys []ed25519.PublicKey) string {
	if len(keys) == 0 {
		return "none"
	}
	var all []string
	for _, key := range keys {
		all = append(all, wire.KeyIDOf(key).String())
	}
	return strings.Join(all, ", ")
}

// readDirectory reads all files of the directory. Hidden ones are how a kubelet replaces a volume's
// content.
func (k Keys) readDirectory() ([]ed25519.PublicKey, error) {
	files, err := os.ReadDir(k.Directory)
	if err != nil {
		return nil, fmt.Errorf("read the public keys: %w", err)
	}
	var all []ed25519.PublicKey
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			continue
		}
		path := filepath.Join(k.Directory, f.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the public keys: %w", err)
		}
		keys, err := ParsePublicKeys(text)
		if err != nil {
			return nil, fmt.Errorf("read the public keys %s: %w", path, err)
		}
		all = append(all, keys...)
	}
	return all, nil
}

var errNotEd25519 = errors.New("is not an Ed25519 key")

// ParseKey reads a private key: PEM of PKCS #8, as openssl genpkey -algorithm ed25519 writes it.
func ParseKey(text []byte) (wire.SigningKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return wire.SigningKey{}, errors.New("want the PEM of a PRIVATE KEY")
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return wire.SigningKey{}, fmt.Errorf("decode the private key: %w", err)
	}
	private, ok := any.(ed25519.PrivateKey)
	if !ok {
		return wire.SigningKey{}, errNotEd25519
	}
	key, ok := wire.NewSigningKey(private.Seed())
	if !ok {
		return wire.SigningKey{}, errNotEd25519
	}
	return key, nil
}

// ParsePublicKeys reads public keys, any number of them: PEM of PUBLIC KEY, or of CERTIFICATE, of
// which only the key counts.
func ParsePublicKeys(text []byte) ([]ed25519.PublicKey, error) {
	var all []ed25519.PublicKey
	for n := 1; ; n++ {
		block, rest := pem.Decode(text)
		if block == nil {
			if strings.TrimSpace(string(text)) != "" {
				return nil, fmt.Errorf("key %d: want the PEM of a PUBLIC KEY or a CERTIFICATE", n)
			}
			return all, nil
		}
		key, err := publicKey(block)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", n, err)
		}
		all, text = append(all, key), rest
	}
}

func publicKey(block *pem.Block) (ed25519.PublicKey, error) {
	var key any
	switch block.Type {
	case "PUBLIC KEY":
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("decode the public key: %w", err)
		}
		key = parsed
	case "CERTIFICATE":
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("decode the certificate: %w", err)
		}
		key = certificate.PublicKey
	default:
		return nil, fmt.Errorf("is a %s, want a PUBLIC KEY or a CERTIFICATE", block.Type)
	}
	public, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, errNotEd25519
	}
	return public, nil
}
