// SPDX-License-Identifier: Apache-2.0

package claimspec_test

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"deviceshare/sharing"
	"deviceshare/sharing/claimspec"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// FuzzReadParameters checks that any text gives parameters in range or mistakes, never both, the
// same every time, and that a claim with this text is read the same way.
func FuzzReadParameters(f *testing.F) {
	for _, text := range []string{
		parameters(`"memory":"10Gi","cores":30,"modes":["mig","hami-core"],"policy":"binpack","numa":"single"`),
		parameters(`"memoryPercentage":50,"memory":1`), parameters(`"memory":"1.5Gi","memory":"2Gi"`), parameters(`"modes":[null,"mig","mig"]`),
		`{"apiVersion":"vgpu.volcano.sh/v1","kind":"Placement","version":1}`, `{"kind":"ShareParameters","kind":null}`, `{}`, `[{}]`, `{"memory":"`, "",
		parameters(`"memory":1e400`), parameters(`"cores":-0`), parameters(`"\ud800":"\ud800"`),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, mistakes := claimspec.ReadParameters("spec.devices.config[0]", text)
		again, same := claimspec.ReadParameters("spec.devices.config[0]", text)
		if !reflect.DeepEqual(got, again) || !reflect.DeepEqual(mistakes, same) {
			t.Fatalf("read twice: %+v %v and %+v %v", got, mistakes, again, same)
		}
		checkParameters(t, got, mistakes)
		c := claim()
		c.Configs = []claimspec.Config{{Path: "spec.devices.config[0]", Driver: wire.ClaimDriver, Parameters: text}}
		asked, wrong := claimspec.Read(c, class(), request.Rules{})
		if !reflect.DeepEqual(wrong, mistakes) {
			t.Fatalf("the parameters have the mistakes %v, the claim %v", mistakes, wrong)
		}
		if len(mistakes) == 0 && (len(asked.Requests) != 1 || got.Cores != nil && asked.Requests[0].Cores != *got.Cores) {
			t.Fatalf("%+v is asked as %+v", got, asked)
		}
		if len(mistakes) > 0 && !reflect.DeepEqual(asked, sharing.PodRequest{}) {
			t.Fatalf("half-read: %+v", asked)
		}
	})
}

func checkParameters(t *testing.T, p claimspec.Parameters, mistakes []request.Mistake) {
	t.Helper()
	if len(mistakes) > 0 {
		if !reflect.DeepEqual(p, claimspec.Parameters{}) {
			t.Fatalf("half-read: %+v with %v", p, mistakes)
		}
		for _, m := range mistakes {
			if !strings.HasPrefix(m.Path, "spec.devices.config[0].opaque.parameters") || m.Message == "" || !utf8.ValidString(m.String()) || len(m.String()) > 400 {
				t.Fatalf("a mistake that cannot be shown: %+v", m)
			}
		}
		return
	}
	if p.Memory != nil {
		b, absolute := p.Memory.Absolute()
		if absolute && (b < sharing.MiB || b > 16<<40 || b%sharing.MiB != 0) {
			t.Fatalf("memory of %v", b)
		}
	}
	if p.Cores != nil && (*p.Cores < 0 || *p.Cores > 100) {
		t.Fatalf("%d cores", *p.Cores)
	}
}
