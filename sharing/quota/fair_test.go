// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"deviceshare/sharing/quota"
)

func TestQueuesShareByWeight(t *testing.T) {
	const much, gib80 = math.MaxInt64, 80 << 30
	for name, c := range map[string]struct {
		total  int64
		claims []quota.Claim
		want   []int64
	}{
		"nobody shares nothing":                         {8, nil, []int64{}},
		"two that want all have one half each":          {8, []quota.Claim{{1, 8, much, 0}, {1, 8, much, 0}}, []int64{4, 4}},
		"by weight":                                     {8, []quota.Claim{{3, 8, much, 0}, {1, 8, much, 0}}, []int64{6, 2}},
		"what one does not want is the other's":         {8, []quota.Claim{{3, 1, much, 0}, {1, 8, much, 0}}, []int64{1, 7}},
		"what one may not have is the other's":          {8, []quota.Claim{{3, 8, 2, 0}, {1, 8, much, 0}}, []int64{2, 6}},
		"who wants little gets it":                      {8, []quota.Claim{{1, 2, much, 0}, {1, 3, much, 0}}, []int64{2, 3}},
		"a guarantee is kept though the weight is less": {8, []quota.Claim{{1, 8, much, 6}, {3, 8, much, 0}}, []int64{6, 2}},
		"a guarantee is kept though it is not wanted":   {8, []quota.Claim{{1, 0, much, 2}, {1, 8, much, 0}}, []int64{2, 6}},
		"a queue without weight has its guarantee":      {8, []quota.Claim{{0, 8, much, 1}, {1, 8, much, 0}}, []int64{1, 7}},
		"more is guaranteed than there is":              {8, []quota.Claim{{1, 8, much, 6}, {1, 8, much, 6}}, []int64{6, 6}},
		"bytes are exact":                               {8 * gib80, []quota.Claim{{1, 8 * gib80, much, 0}, {1, 8 * gib80, much, 0}}, []int64{4 * gib80, 4 * gib80}},
		"what does not divide is rounded down":          {8, []quota.Claim{{1, 8, much, 0}, {1, 8, much, 0}, {1, 8, much, 0}}, []int64{2, 2, 2}},
		"one bound breaks another one":                  {10, []quota.Claim{{1, 1, much, 0}, {1, 20, much, 6}, {1, 20, much, 0}}, []int64{1, 6, 3}},
		"huge claims do not wrap":                       {much, []quota.Claim{{math.MaxInt32, much, much, 0}, {math.MaxInt32, much, much, 0}}, []int64{much / 2, much / 2}},
	} {
		if got := quota.ShareByWeight(c.total, c.claims); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
	}
}

// Random claims: one unit after the other goes to whoever has the least for its weight and may have
// more. Each share is what it gets that way, but for rounding.
func TestSharesAreWhatHandingOutUnitsGives(t *testing.T) {
	const unit = 1000 // of a share, for the rounding
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 5))
		total, claims := r.Int64N(12), []quota.Claim{}
		for range 1 + r.IntN(5) {
			c := quota.Claim{Weight: r.Int64N(4), Wants: r.Int64N(8), Most: r.Int64N(9)}
			if r.IntN(3) == 0 {
				c.Least = r.Int64N(3)
			}
			claims = append(claims, c)
		}
		has, left := make([]int64, len(claims)), total*unit
		for i, c := range claims {
			has[i] = c.Least * unit
			left -= c.Least * unit
		}
		for ; left > 0; left-- {
			next := -1
			for i, c := range claims {
				if has[i] < min(c.Wants, c.Most)*unit && c.Weight > 0 && (next < 0 || has[i]*claims[next].Weight < has[next]*c.Weight) {
					next = i
				}
			}
			if next < 0 {
				break
			}
			has[next]++
		}
		for i, got := range quota.ShareByWeight(total, claims) {
			if want := float64(has[i]) / unit; math.Abs(float64(got)-math.Floor(want+0.01)) > 0 {
				t.Fatalf("seed %d: %d of %d among %+v: the %d-th gets %v; want %v", seed, got, total, claims, i, got, want)
			}
		}
	}
}
