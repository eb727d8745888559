// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// signingKey is the n-th key of the tests and its public half.
func signingKey(t testing.TB, n byte) (wire.SigningKey, ed25519.PublicKey) {
	t.Helper()
	seed := bytes.Repeat([]byte{n}, ed25519.SeedSize)
	key, ok := wire.NewSigningKey(seed)
	if !ok {
		t.Fatal("a seed of 32 bytes makes no key")
	}
	return key, ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
}

func signedPlacement(t testing.TB) wire.Signed {
	t.Helper()
	text, err := wire.EncodePlacement(pod1())
	if err != nil {
		t.Fatal(err)
	}
	return wire.Signed{Owner: "uid-1", Node: "node1", Placement: text}
}

func TestASignatureVouchesForOnePodOneNodeAndOnePlacement(t *testing.T) {
	key, public := signingKey(t, 1)
	_, other := signingKey(t, 2)
	what := signedPlacement(t)
	s := key.Sign(what)
	forged := s
	forged.Bytes[10] ^= 1
	for name, c := range map[string]struct {
		signature wire.Signature
		keys      []ed25519.PublicKey
		change    func(*wire.Signed)
		want      wire.Verdict
	}{
		"what was signed":                     {s, []ed25519.PublicKey{public}, func(*wire.Signed) {}, wire.Genuine},
		"the key is the last of several":      {s, []ed25519.PublicKey{other, public}, func(*wire.Signed) {}, wire.Genuine},
		"another pod":                         {s, []ed25519.PublicKey{public}, func(w *wire.Signed) { w.Owner = "uid-2" }, wire.OtherText},
		"another node":                        {s, []ed25519.PublicKey{public}, func(w *wire.Signed) { w.Node = "node2" }, wire.OtherText},
		"another placement":                   {s, []ed25519.PublicKey{public}, func(w *wire.Signed) { w.Placement = strings.Replace(w.Placement, "node1", "node2", 1) }, wire.OtherText},
		"a placement with a space":            {s, []ed25519.PublicKey{public}, func(w *wire.Signed) { w.Placement += " " }, wire.OtherText},
		"the end of the pod goes to the node": {s, []ed25519.PublicKey{public}, func(w *wire.Signed) { w.Owner, w.Node = "uid-", "1node1" }, wire.OtherText},
		"a signature with another bit":        {forged, []ed25519.PublicKey{public}, func(*wire.Signed) {}, wire.OtherText},
		"a key that the node does not know":   {s, []ed25519.PublicKey{other}, func(*wire.Signed) {}, wire.UnknownKey},
		"no keys":                             {s, nil, func(*wire.Signed) {}, wire.UnknownKey},
		"a key that is too short":             {s, []ed25519.PublicKey{public[:31]}, func(*wire.Signed) {}, wire.UnknownKey},
		"the zero signature":                  {wire.Signature{}, []ed25519.PublicKey{public}, func(*wire.Signed) {}, wire.UnknownKey},
		"the name of a key, and no signature": {wire.Signature{Key: wire.KeyIDOf(public)}, []ed25519.PublicKey{public}, func(*wire.Signed) {}, wire.OtherText},
	} {
		t.Run(name, func(t *testing.T) {
			about := what
			c.change(&about)
			if got := c.signature.Check(c.keys, about); got != c.want {
				t.Errorf("the verdict is %d, want %d", got, c.want)
			}
		})
	}
}

// The text is written here a second time: later versions must be able to read signatures.
func TestWhatIsSignedIsFixed(t *testing.T) {
	key, public := signingKey(t, 7)
	var text []byte
	text = append(text, "deviceshare pod placement, version 1\x00"...)
	for _, part := range []string{"uid", "n", "{}"} {
		text = append(binary.BigEndian.AppendUint64(text, uint64(len(part))), part...)
	}
	s := key.Sign(wire.Signed{Owner: "uid", Node: "n", Placement: "{}"})
	if !ed25519.Verify(public, text, s.Bytes[:]) {
		t.Error("the signature is of another text")
	}
}

func TestASignatureIsReadAsItWasWritten(t *testing.T) {
	key, public := signingKey(t, 3)
	s := key.Sign(signedPlacement(t))
	text, err := wire.EncodeSignature(s)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.DecodeSignature(text); err != nil || got != s {
		t.Errorf("read is %+v (%v), want %+v", got, err, s)
	}
	if want := `"key":"` + hex.EncodeToString(func() []byte { id := wire.KeyIDOf(public); return id[:] }()) + `"`; !strings.Contains(text, want) {
		t.Errorf("%s lacks %s", text, want)
	}
}

func TestASeedHasThirtyTwoBytes(t *testing.T) {
	for _, n := range []int{0, 31, 33, 64} {
		if _, ok := wire.NewSigningKey(make([]byte, n)); ok {
			t.Errorf("a seed of %d bytes makes a key", n)
		}
	}
}

func TestMistakesInASignature(t *testing.T) {
	key, _ := signingKey(t, 3)
	text, err := wire.EncodeSignature(key.Sign(signedPlacement(t)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, place, why string }{
		"nothing":               {"", "byte 0", "ends too early"},
		"another version":       {strings.Replace(text, `"version":1`, `"version":2`, 1), "version", "2 is not known"},
		"no version":            {strings.Replace(text, `"version":1,`, ``, 1), "version", "is missing"},
		"a key twice":           {strings.Replace(text, `{`, `{"KEY":"x",`, 1), "", ""},
		"a name that is no key": {strings.Replace(text, `"key":"`, `"key":"x`, 1), "key", "is not the name of a key"},
		"a name that is short":  {strings.Replace(text, `"key":"`, `"key":"00","k":"`, 1), "key", "is not the name of a key"},
		"no base64":             {strings.Replace(text, `"signature":"`, `"signature":"!`, 1), "signature", "is not the base64 of 64 bytes"},
		"a short signature":     {`{"version":1,"key":"0000000000000000","signature":"AAAA"}`, "signature", "is not the base64 of 64 bytes"},
		"a very long text":      {text + strings.Repeat(" ", wire.MaxText), "", "bytes long"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.DecodeSignature(c.text)
			if err == nil || !strings.Contains(err.Error(), c.place) || !strings.Contains(err.Error(), c.why) {
				t.Fatalf("the answer is %v, want %q and %q", err, c.place, c.why)
			}
			explained(t, err)
		})
	}
}

// Whatever bits change, in the text or in what it is about: a signature that is read is genuine for
// exactly what was signed.
func TestNoChangeOfASignatureOrItsTextIsGenuine(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	key, public := signingKey(t, 9)
	what := signedPlacement(t)
	text, err := wire.EncodeSignature(key.Sign(what))
	if err != nil {
		t.Fatal(err)
	}
	flip := func(s string) string {
		b := []byte(s)
		b[random.IntN(len(b))] ^= 1 << random.IntN(8)
		return string(b)
	}
	for range 2000 {
		about, written := what, text
		switch random.IntN(4) {
		case 0:
			written = flip(text)
		case 1:
			about.Owner = sharing.Owner(flip(string(about.Owner)))
		case 2:
			about.Node = flip(about.Node)
		case 3:
			about.Placement = flip(about.Placement)
		}
		s, err := wire.DecodeSignature(written)
		if err != nil || about == what && s == key.Sign(what) { // the name of a field in other letters
			continue
		}
		if s.Check([]ed25519.PublicKey{public}, about) == wire.Genuine {
			t.Fatalf("%s is genuine for %+v", written, about)
		}
	}
}

func FuzzSignature(f *testing.F) {
	key, public := signingKey(f, 1)
	what := signedPlacement(f)
	text, _ := wire.EncodeSignature(key.Sign(what))
	f.Add(text)
	f.Add(`{"version":1,"key":"","signature":""}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := wire.DecodeSignature(text)
		if err != nil {
			explained(t, err)
			return
		}
		again, err := wire.EncodeSignature(s)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if back, err := wire.DecodeSignature(again); err != nil || back != s {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, back, s)
		}
		if s.Check([]ed25519.PublicKey{public}, what) == wire.Genuine && s != key.Sign(what) {
			t.Fatalf("a signature that nobody made: %s", text)
		}
	})
}
