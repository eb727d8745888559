// SPDX-License-Identifier: Apache-2.0

package claimspec_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/claimspec"
	"deviceshare/sharing/request"
)

// field is one field of parameters as it is written, and what it makes of a request that has been
// made by the ones before. A field without effect is a mistake.
type field struct {
	name, value string
	effect      func(*sharing.PodRequest)
}

// randomField makes a field. Right ones and wrong ones are about as likely.
func randomField(r *rand.Rand) field {
	n := r.IntN(140) - 20
	percent := n >= 0 && n <= 100
	memory := func(m sharing.Memory) func(*sharing.PodRequest) {
		return func(p *sharing.PodRequest) { p.Requests[0].Memory = m }
	}
	switch r.IntN(7) {
	case 0:
		unit := []string{"Mi", "Gi", "Ti", "M", "B", ""}[r.IntN(6)]
		mib := map[string]int64{"Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}[unit] * int64(n)
		if unit == "M" {
			mib = (int64(n)*1e6 + 1<<20 - 1) >> 20
		}
		f := field{"memory", fmt.Sprintf("%q", fmt.Sprint(n)+unit), memory(sharing.AbsoluteMemory(sharing.MiBs(mib)))}
		if n <= 0 || unit == "B" || unit == "" || unit == "M" && n < 2 || mib > 16<<20 {
			f.effect = nil
		}
		return f
	case 1:
		f := field{"memoryPercentage", fmt.Sprint(n), memory(sharing.PercentMemory(sharing.Percent(n)))}
		if !percent || n == 0 {
			f.effect = nil
		}
		return f
	case 2:
		f := field{"cores", fmt.Sprint(n), func(p *sharing.PodRequest) { p.Requests[0].Cores = sharing.Percent(n) }}
		if !percent {
			f.effect = nil
		}
		return f
	case 3:
		if n < 20 {
			return field{"policy", `"best"`, nil}
		}
		return field{"policy", `"spread"`, func(p *sharing.PodRequest) { p.Policy = "spread" }}
	case 4:
		if n < 20 {
			return field{"modes", `["mig","mig"]`, nil}
		}
		return field{"modes", `["mps","mig"]`, func(p *sharing.PodRequest) { p.Modes = []sharing.Mode{sharing.MPS, sharing.MIG} }}
	case 5:
		if n < 20 {
			return field{"numa", `"any"`, nil}
		}
		return field{"numa", `"single"`, func(p *sharing.PodRequest) { p.OneNUMA = true }}
	}
	return field{"count", "1", nil}
}

// randomFields makes the fields of one configuration, none of them twice. wrong is how many
// mistakes they have.
func randomFields(r *rand.Rand) (fields []field, wrong int) {
	seen := map[string]bool{}
	for range r.IntN(4) {
		f := randomField(r)
		if r.IntN(8) > 0 && f.effect == nil || seen[f.name] {
			continue
		}
		if f.effect == nil {
			wrong++
		}
		fields, seen[f.name] = append(fields, f), true
	}
	if seen["memory"] && seen["memoryPercentage"] {
		wrong++
	}
	return fields, wrong
}

func text(fields []field) string {
	var parts []string
	for _, f := range fields {
		parts = append(parts, fmt.Sprintf("%q:%s", f.name, f.value))
	}
	return strings.Join(parts, ",")
}

// TestRandomClaimsAreReadAsADumbReaderDoes writes random fields down, into class and claim, and
// applies their effects one after the other.
func TestRandomClaimsAreReadAsADumbReaderDoes(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, seed))
	right := 0
	for range 20000 {
		want := sharing.PodRequest{Owner: "uid-1", Namespace: "team", Requests: []sharing.Request{
			{Container: "gpu", Count: 1 + r.IntN(32), Namespace: "team", Memory: sharing.AbsoluteMemory(100 * sharing.MiB), Cores: 3}}}
		c, k := claim(), class()
		c.Requests[0].Count = int64(want.Requests[0].Count)
		wrong := 0
		for i := range r.IntN(4) {
			fields, mistakes := randomFields(r)
			wrong += mistakes
			for _, f := range fields {
				if f.effect != nil {
					f.effect(&want)
				}
			}
			if configured := config(fmt.Sprint("spec.devices.config[", i, "]"), text(fields)); i == 0 {
				k.Configs = append(k.Configs, configured) // the class comes first
			} else {
				c.Configs = append(c.Configs, configured)
			}
		}
		got, mistakes := claimspec.Read(c, k, request.Rules{Defaults: request.Defaults{Memory: 100, Cores: 3}})
		if len(mistakes) != wrong {
			t.Fatalf("seed %d: %d mistakes in %s and %s are reported as\n%s", seed, wrong, k.Configs, c.Configs, strings.Join(request.Texts(mistakes), "\n"))
		}
		if wrong > 0 {
			continue
		}
		right++
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %s and %s\nare read as %+v\nwant        %+v", seed, k.Configs, c.Configs, got, want)
		}
	}
	if right < 5000 || right > 19000 {
		t.Errorf("%d of 20000 claims are right: the test tries one half only", right)
	}
}
