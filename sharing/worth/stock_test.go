// SPDX-License-Identifier: Apache-2.0

package worth

import (
	"math"
	"math/rand/v2"
	"testing"
)

// contents calls visit with every content of one device of these sizes.
func contents(sizes []int, visit func(count []int)) {
	count := make([]int, len(sizes))
	var fill func(i, left int)
	fill = func(i, left int) {
		if i == len(sizes) {
			visit(count)
			return
		}
		for n := 0; n*sizes[i] <= left; n++ {
			count[i] = n
			fill(i+1, left-n*sizes[i])
		}
		count[i] = 0
	}
	fill(0, wholeDevice)
}

func demandOf(sizes []int, times []float64) *bySize {
	var d bySize
	for i, z := range sizes {
		d[z] += times[i]
	}
	return &d
}

func TestPricesOfSizes(t *testing.T) {
	for says, c := range map[string]struct {
		sizes []int
		times []float64
		want  map[int]float64
	}{
		"nothing is asked for":                 {nil, nil, map[int]float64{30: 0, 100: 1}},
		"half devices":                         {[]int{50}, []float64{7}, map[int]float64{50: 0.5, 49: 0, 100: 1}},
		"a third of which only two fit":        {[]int{40}, []float64{3}, map[int]float64{40: 0.5}},
		"more than a half takes all":           {[]int{51}, []float64{3}, map[int]float64{51: 1}},
		"what fits beside plenty is for free":  {[]int{81, 19}, []float64{10, 4}, map[int]float64{81: 1, 19: 0}},
		"what fits beside the scarce has both": {[]int{81, 19}, []float64{1, 500}, map[int]float64{81: 1 - 0.2, 19: 0.2}},
	} {
		price := priceOf(demandOf(c.sizes, c.times))
		for z, want := range c.want {
			if math.Abs(price[z]-want) > 1e-6 {
				t.Errorf("%s: a share of %d is worth %.4f, want %.4f", says, z, price[z], want)
			}
		}
	}
}

// The prices are an optimum of the dual: no content is worth more than a device, and devices can
// be filled so that no more are needed than the demand is worth. The oracle lists every content and
// checks that the demand lies under those that are worth 1.
func TestPricesAreOptimalWhateverIsAskedFor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var sizes []int
		var times []float64
		for range 1 + r.IntN(5) {
			sizes, times = append(sizes, 11+r.IntN(89)), append(times, float64(1+r.IntN(50)))
		}
		d := demandOf(sizes, times)
		price := priceOf(d)
		contents(sizes, func(count []int) {
			sum := 0.0
			for i, n := range count {
				sum += float64(n) * price[sizes[i]]
			}
			if sum > 1+1e-6 {
				t.Fatalf("%v of %v is worth %.6f", count, sizes, sum)
			}
		})
		sum := 0.0
		for z, n := range d[:wholeDevice] {
			if price[z] < 0 || math.IsNaN(price[z]) {
				t.Fatalf("a share of %d is worth %v", z, price[z])
			}
			sum += n * price[z]
		}
		if best := upper(sizes, d); sum < best-1e-6 {
			t.Fatalf("%v of %v: the demand is worth %.6f, yet prices exist for %.6f", times, sizes, sum, best)
		}
	}
}

// upper is what the demand is worth at most, by coordinate search: it raises one price and
// lowers others as long as every content stays at 1. It is a lower bound of the optimum.
func upper(sizes []int, d *bySize) float64 {
	best := 0.0
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var price bySize
		for _, z := range sizes {
			price[z] = r.Float64()
		}
		most := 0.0
		contents(sizes, func(count []int) {
			sum := 0.0
			seen := bySize{}
			for i, n := range count {
				if seen[sizes[i]] == 0 {
					sum += float64(n) * price[sizes[i]]
				}
				seen[sizes[i]] += float64(n)
			}
			most = max(most, sum)
		})
		sum := 0.0
		for z := range d[:wholeDevice] {
			sum += d[z] * price[z] / most
		}
		best = max(best, sum)
	}
	return best
}

func TestTheWorthOfWhatIsFreeGrowsWithIt(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		var d bySize
		for range r.IntN(60) {
			d[1+r.IntN(99)] += float64(1 + r.IntN(1000))
		}
		price := priceOf(&d)
		content := contentWorth(&price)
		if content[0] != 0 || content[wholeDevice] != 1 {
			t.Fatalf("nothing is worth %v, a device %v", content[0], content[wholeDevice])
		}
		for a := 1; a <= wholeDevice; a++ {
			if content[a] < content[a-1] || content[a] > 1 || content[a] < price[a]-1e-6 && a < wholeDevice {
				t.Fatalf("%d free is worth %v, %d is worth %v", a, content[a], a-1, content[a-1])
			}
		}
	}
}

func BenchmarkPrices(b *testing.B) {
	var d bySize
	r := rand.New(rand.NewPCG(5, 6))
	for z := 1; z < wholeDevice; z++ {
		d[z] = float64(1 + r.IntN(1000))
	}
	for b.Loop() {
		priceOf(&d)
	}
}
