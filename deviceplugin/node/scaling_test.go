// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math"
	"testing"

	"deviceshare/sharing"
)

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
	for factor, want := range map[float64]sharing.Percent{1: 100, 1.5: 150, 0: 100, -1: 100, 5000: 100} {
		if got := scaledCores(factor); got != want {
			t.Errorf("cores at %v: %d, want %d", factor, got, want)
		}
	}
}
