// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math"
	"testing"

	"deviceshare/sharing"
)

// Hardware gives a partition what it has, whatever the administrator wants to be offered.
func TestNothingIsScaledInModeMIG(t *testing.T) {
	f := Facts{UUID: "GPU-0", Memory: 40 * sharing.GiB}
	d := deviceFromFacts(&f, Offer{Mode: sharing.MIG, MemoryScaling: 0.5, CoreScaling: 2, MaxShares: 10})
	if d.Memory != f.Memory || d.Physical != 0 || d.Cores != 100 {
		t.Errorf("%+v is offered", d)
	}
}

func TestScalingNeverOverflowsAndIgnoresNonsense(t *testing.T) {
	for name, tc := range map[string]struct {
		factor float64
		want   sharing.Bytes
	}{
		"one":          {1, sharing.GiB},
		"half":         {0.5, 512 * sharing.MiB},
		"rounded down": {1.0009, 1024 * sharing.MiB},
		"zero":         {0, sharing.GiB},
		"negative":     {-2, sharing.GiB},
		"no number":    {math.NaN(), sharing.GiB},
		"infinite":     {math.Inf(1), sharing.GiB},
		"astronomical": {1e30, sharing.MaxBytes},
	} {
		if got := scaledMemory(sharing.GiB, tc.factor); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	for factor, want := range map[float64]sharing.Percent{1: 100, 1.5: 150, 0.001: 1, 0: 100, -1: 100, 5000: 100} {
		if got := scaledCores(factor); got != want {
			t.Errorf("cores at %v: %d, want %d", factor, got, want)
		}
	}
}
