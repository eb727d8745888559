// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"

	"deviceshare/sharing"
)

const signatureFormat = "placement signature"

// signatureDomain begins every text that is signed, so that a signature of anything else is none
// of a placement.
const signatureDomain = "deviceshare pod placement, version 1\x00"

// Signed is what a scheduler vouches for: that it gave this pod, on this node, the placement that
// EncodePlacement wrote as this text.
type Signed struct {
	Owner     sharing.Owner
	Node      string
	Placement string
}

// signingInput is the text that is signed. The length goes before each part, so that no two values
// of Signed have one text.
func (s Signed) signingInput() []byte {
	b := []byte(signatureDomain)
	for _, part := range []string{string(s.Owner), s.Node, s.Placement} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// Signature says with which key a placement was signed, and the signature.
type Signature struct {
	Key   KeyID
	Bytes [ed25519.SignatureSize]byte
}

// KeyID names a public key: the first bytes of its hash.
type KeyID [8]byte

// KeyIDOf returns the name of a public key.
func KeyIDOf(key ed25519.PublicKey) KeyID {
	sum := sha256.Sum256(key)
	return KeyID(sum[:len(KeyID{})])
}

// String is the name for people, and on the wire.
func (k KeyID) String() string { return hex.EncodeToString(k[:]) }

// SigningKey signs placements.
type SigningKey struct {
	id      KeyID
	private ed25519.PrivateKey
}

// NewSigningKey returns the key that a seed of 32 bytes makes; false for any other length.
func NewSigningKey(seed []byte) (SigningKey, bool) {
	if len(seed) != ed25519.SeedSize {
		return SigningKey{}, false
	}
	private := ed25519.NewKeyFromSeed(seed)
	return SigningKey{KeyIDOf(ed25519.PublicKey(private[ed25519.SeedSize:])), private}, true
}

// Sign vouches for a placement. The same key and text always give the same signature.
func (k SigningKey) Sign(what Signed) Signature {
	return Signature{Key: k.id, Bytes: [ed25519.SignatureSize]byte(ed25519.Sign(k.private, what.signingInput()))}
}

// Verdict is what a node makes of a signature.
type Verdict uint8

// The verdicts.
const (
	// UnknownKey: the node knows no such key.
	UnknownKey Verdict = iota
	// OtherText: the signature is of another pod, node or placement, or was made up.
	OtherText
	// Genuine: a scheduler with a known key vouches for the placement.
	Genuine
)

// Check looks whether a signature vouches for a placement, by any of some keys.
func (s Signature) Check(keys []ed25519.PublicKey, what Signed) Verdict {
	verdict := UnknownKey
	for _, key := range keys {
		if len(key) != ed25519.PublicKeySize || KeyIDOf(key) != s.Key {
			continue
		}
		if ed25519.Verify(key, what.signingInput(), s.Bytes[:]) {
			return Genuine
		}
		verdict = OtherText
	}
	return verdict
}

type signatureText struct {
	Version   int    `json:"version"`
	Key       string `json:"key"`
	Signature string `json:"signature"`
}

// EncodeSignature writes a signature as JSON.
func EncodeSignature(s Signature) (string, error) {
	return renderJSON(signatureFormat, signatureText{Version: version, Key: s.Key.String(), Signature: base64.StdEncoding.EncodeToString(s.Bytes[:])})
}

// DecodeSignature reads what EncodeSignature writes. Errors are of type *Error.
func DecodeSignature(text string) (Signature, error) {
	var in signatureText
	if err := parseJSON(signatureFormat, text, &in); err != nil {
		return Signature{}, err
	}
	var s Signature
	key, err := hex.DecodeString(in.Key)
	if err != nil || len(key) != len(s.Key) {
		return Signature{}, &Error{signatureFormat, "key", quoteExcerpt(in.Key) + " is not the name of a key"}
	}
	bytes, err := base64.StdEncoding.Strict().DecodeString(in.Signature)
	if err != nil || len(bytes) != len(s.Bytes) {
		return Signature{}, &Error{signatureFormat, "signature", "is not the base64 of 64 bytes"}
	}
	copy(s.Key[:], key)
	copy(s.Bytes[:], bytes)
	return s, nil
}
