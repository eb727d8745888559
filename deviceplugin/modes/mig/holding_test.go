// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"strings"
	"testing"
)

func sample() holding {
	return holding{
		Device: "GPU-a", Owner: "uid", Container: "main", Claim: "id", Kind: "init", Order: 2,
		Profile: "3g.40gb", Start: 4, Size: 4, Made: made{GI: 2, CI: 0, UUID: "MIG-1"},
	}
}

func TestHoldingsAreReadBackAsWritten(t *testing.T) {
	intent := sample()
	intent.Made = made{}
	for name, h := range map[string]holding{"made": sample(), "not made yet": intent} {
		text, err := encodeHolding(&h)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeHolding(text); err != nil || got != h {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestTheTextOfAHoldingIsAsWrittenDown(t *testing.T) {
	h := sample()
	text, err := encodeHolding(&h)
	want := `{"version":1,"device":"GPU-a","owner":"uid","container":"main","claim":"id","kind":"init","order":2,"profile":"3g.40gb","start":4,"size":4,"made":{"gi":2,"ci":0,"uuid":"MIG-1"}}` + "\n"
	if err != nil || string(text) != want {
		t.Errorf("the text is %s, %v; files of a running node would not be read", text, err)
	}
}

func TestAHoldingIsNeverHalfRead(t *testing.T) {
	h := sample()
	good, _ := encodeHolding(&h)
	change := func(from, to string) string { return strings.Replace(string(good), from, to, 1) }
	cases := map[string]string{
		"empty":                      "",
		"cut off":                    string(good[:len(good)/2]),
		"another version":            change(`"version":1`, `"version":2`),
		"no version":                 change(`"version":1,`, ``),
		"no owner":                   change(`"uid"`, `""`),
		"no partition":               change(`"size":4`, `"size":0`),
		"a place no device has":      change(`"start":4`, `"start":61`),
		"a negative place":           change(`"start":4`, `"start":-1`),
		"a kind that is none":        change(`"init"`, `"exit"`),
		"a number that is too large": change(`"start":4`, `"start":99999999999999999999`),
	}
	for name, text := range cases {
		if got, err := decodeHolding([]byte(text)); err == nil || got != (holding{}) {
			t.Errorf("%s: read %+v, %v", name, got, err)
		}
	}
}

func FuzzHolding(f *testing.F) {
	h := sample()
	good, _ := encodeHolding(&h)
	f.Add(good)
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"device":"a","owner":"b","container":"c","kind":"app","profile":"p","size":1}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := decodeHolding(text)
		if err != nil {
			return
		}
		again, err := encodeHolding(&h)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if got, err := decodeHolding(again); err != nil || got != h {
			t.Fatalf("what was written reads as %+v, %v", got, err)
		}
	})
}
