// SPDX-License-Identifier: Apache-2.0

package worth

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestUsualSizesAskForAFiftiethOfAllAtLeast(t *testing.T) {
	for says, c := range map[string]struct {
		demand map[int]float64
		want   []int
	}{
		"nothing is asked for":              {nil, nil},
		"one size":                          {map[int]float64{50: 7}, []int{50}},
		"the least first":                   {map[int]float64{81: 10, 19: 4}, []int{19, 81}},
		"small ones count by what they ask": {map[int]float64{81: 10, 2: 9}, []int{2, 81}},
		"so few ask for little":             {map[int]float64{81: 10, 2: 8}, []int{81}},
		"whole devices are no shares":       {map[int]float64{50: 7, 100: 1}, []int{50}},
	} {
		var d bySize
		for z, n := range c.demand {
			d[z] = n
		}
		if got := usualSizes(&d); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", says, got, c.want)
		}
	}
}

// The example of docs/placement.md.
func TestWhatSharesCostWhere81And32AreUsual(t *testing.T) {
	usable := usableParts([]int{32, 81})
	for says, c := range map[string]struct {
		free, share int
		want        float64
	}{
		"18 of 50":             {50, 18, 0},
		"32 of 50":             {50, 32, 0.32},
		"19 next to 81":        {19, 19, 0},
		"19 of an empty one":   {100, 19, 0.19},
		"81 of an empty one":   {100, 81, 1},
		"a third 32 next to 2": {36, 32, 0.32},
	} {
		if got := usable[c.free] - usable[c.free-c.share]; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s costs %.2f, want %.2f", says, got, c.want)
		}
	}
}

// The oracle tries every content of the free part.
func TestUsablePartsAreTheFullestContents(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		var sizes []int
		for range r.IntN(5) {
			sizes = append(sizes, 9+r.IntN(91))
		}
		usable := usableParts(sizes)
		for free := range wholeDevice {
			if want := float64(fullest(sizes, free)) / wholeDevice; usable[free] != want {
				t.Fatalf("%v fill %v of %d, want %v", sizes, usable[free], free, want)
			}
		}
		if usable[wholeDevice] != 1 {
			t.Fatalf("an empty device is usable to %v", usable[wholeDevice])
		}
	}
}

func fullest(sizes []int, free int) int {
	most := 0
	for i, z := range sizes {
		for n := z; n <= free; n += z {
			most = max(most, n+fullest(sizes[i+1:], free-n))
		}
	}
	return most
}

// A device is never more usable with less of it free.
func TestMoreFreeIsNoLessUsable(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		var d bySize
		for range r.IntN(60) {
			d[1+r.IntN(99)] += float64(1 + r.IntN(1000))
		}
		usable := usableParts(usualSizes(&d))
		for free := 1; free <= wholeDevice; free++ {
			if part := float64(free) / wholeDevice; usable[free] < usable[free-1] || usable[free] > part+1e-12 {
				t.Fatalf("%d free is usable to %v, %d to %v", free, usable[free], free-1, usable[free-1])
			}
		}
	}
}
