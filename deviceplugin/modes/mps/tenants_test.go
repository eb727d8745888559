// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// in is a claim of a pod in a namespace.
func in(namespace string, c modes.Claim) modes.Claim {
	c.Namespace = namespace
	return c
}

func TestOneNamespaceAtATimeIsServedByADevice(t *testing.T) {
	initially := in("red", asks("a", "init"))
	initially.Kind = sharing.Init
	for name, tc := range map[string]struct {
		there []modes.Claim
		comes modes.Claim
		any   bool
		want  string // in the refusal; "" is served
	}{
		"the same namespace":                     {[]modes.Claim{in("blue", asks("a", "main"))}, in("blue", asks("b", "main")), false, ""},
		"another namespace":                      {[]modes.Claim{in("red", asks("a", "main"))}, in("blue", asks("b", "main")), false, "pod red/pod-a has it, and this one is of namespace blue"},
		"an init container of another namespace": {[]modes.Claim{initially}, in("blue", asks("b", "main")), false, "pod red/pod-a has it"},
		"another namespace elsewhere":            {[]modes.Claim{elsewhere(in("red", asks("a", "main")))}, in("blue", asks("b", "main")), false, ""},
		"another namespace, where all meet":      {[]modes.Claim{in("red", asks("a", "main"))}, in("blue", asks("b", "main")), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.multiNamespace = tc.any
			for _, c := range tc.there {
				inject(t, h, c)
			}
			before := h.State()
			_, err := h.fresh().Prepare(context.Background(), tc.comes)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--mps-tenants=any")):
				t.Errorf("the answer is %v, want %q in it", err, tc.want)
			case tc.want != "" && h.State() != before:
				t.Errorf("the refusal left\n%s", h.State())
			}
		})
	}
}

func TestPodsThatMetBeforeTheyWereKeptApartGoOn(t *testing.T) {
	h := newHost(t)
	h.multiNamespace, h.noRoot = true, false
	inject(t, h, in("red", as(asks("a", "main"), 0)))
	inject(t, h, in("blue", as(asks("b", "main"), 0)))
	h.multiNamespace, h.noRoot = false, true
	inject(t, h, in("red", as(asks("a", "main"), 0)))
	inject(t, h, in("blue", as(asks("b", "main"), 0)))
}

func TestRootIsServedWhereTheAdministratorAllowsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		claim   modes.Claim
		refuses bool
		want    string // in the refusal; "" is served
	}{
		"another user":                         {as(asks("a", "main"), 1000), true, ""},
		"root":                                 {as(asks("a", "main"), 0), true, "the container would run as user 0: set securityContext.runAsUser"},
		"a user that only the image knows":     {ofImage(asks("a", "main")), true, "the container would run as the user of its image"},
		"root, where it is allowed":            {as(asks("a", "main"), 0), false, ""},
		"the image's user, where it is so too": {ofImage(asks("a", "main")), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.noRoot = tc.refuses
			_, err := h.fresh().Prepare(context.Background(), tc.claim)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("the answer is %v, want %q in it", err, tc.want)
			}
		})
	}
}

// A container that came first as another user does not make room for root.
func TestAnInitContainerDoesNotLetRootIn(t *testing.T) {
	h := newHost(t)
	h.noRoot = true
	first := as(asks("a", "init"), 1000)
	first.Kind = sharing.Init
	inject(t, h, first)
	if _, err := h.fresh().Prepare(context.Background(), as(asks("a", "main"), 0)); err == nil {
		t.Error("root was let in behind an init container of another user")
	}
}

func TestThePipeIsWritableUnlessTheAdministratorSaysOtherwise(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		h := newHost(t)
		h.readOnlyPipe = readOnly
		got := inject(t, h, asks("a", "main"))
		i := slices.IndexFunc(got.Mounts, func(m modes.Mount) bool { return strings.HasSuffix(m.Container, "/pipe") })
		if i < 0 || got.Mounts[i].ReadOnly != readOnly {
			t.Errorf("read only %v: mounts %+v", readOnly, got.Mounts)
		}
	}
}
