// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"testing"

	"deviceshare/sharing/wire"
)

// seal notes what it is asked to sign.
type seal struct {
	signed []wire.Signed
	err    error
}

func (s *seal) Sign(what wire.Signed) (string, error) {
	s.signed = append(s.signed, what)
	return "seal of " + string(what.Owner), s.err
}

func TestTheSignatureOfAPlacementTravelsOnTheBinding(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 7000}))
	s := &seal{}
	w.store.signer = s
	w.schedule()
	got := w.bound("p")
	want := wire.Signed{Owner: "uid-p", Node: "n1", Placement: got.Annotations[wire.PodPlacement]}
	if got.Annotations[wire.PodSignature] != "seal of uid-p" || len(s.signed) != 1 || s.signed[0] != want || want.Placement == "" {
		t.Errorf("the Binding has %v, signed was %+v, want %+v", got.Annotations, s.signed, want)
	}
}

func TestAPlacementThatCannotBeSignedIsNotBound(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 7000}))
	s := &seal{err: errors.New("no key")}
	w.store.signer = s
	for range 3 {
		w.schedule()
	}
	if b, is := w.binding("p"); is || len(s.signed) == 0 {
		t.Errorf("the pod was bound with %v, after %d attempts to sign", b.Annotations, len(s.signed))
	}
	s.err = nil
	w.eventually("the pod is placed when the key is back", func() bool {
		w.schedule()
		b, _ := w.binding("p")
		return b.Annotations[wire.PodSignature] != ""
	})
}

func TestWithoutAKeyNothingIsSigned(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 7000}))
	w.schedule()
	if text, is := w.bound("p").Annotations[wire.PodSignature]; is {
		t.Errorf("the Binding has the signature %q", text)
	}
}
