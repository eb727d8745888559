// SPDX-License-Identifier: Apache-2.0

// Package churn_test lets partitions come and go on a hundred A100s and counts
// how much of what is asked can be given.
package churn_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// mixes of 1g, 2g, 3g and 7g.
var mixes = []mix{{.25, .25, .25, .25}, {.50, .25, .15, .10}, {.40, .30, .30, 0}}

// column is one way to place.
type column struct {
	name string
	make func(tb testing.TB, devices int) cluster
}

func columns() []column {
	cut := func(how func(sharing.Device) sharing.Device) func(testing.TB, int) cluster {
		return func(tb testing.TB, devices int) cluster { return node(tb, devices, how) }
	}
	return []column{
		{"first-match, shipped groups", cut(func(d sharing.Device) sharing.Device { return d })},
		{"best-fit, shipped groups", cut(sharingtest.BestFit)},
		{"first fit, any layout", func(_ testing.TB, n int) cluster { return newFirstFit(n) }},
		{"first-match, any layout", cut(sharingtest.Free)},
		{"best-fit, any layout", cut(func(d sharing.Device) sharing.Device { return sharingtest.BestFit(sharingtest.Free(d)) })},
		{"bound: repack in a device", func(_ testing.TB, n int) cluster { return newRepacking(n) }},
		{"bound: move anything", func(_ testing.TB, n int) cluster { return &moving{devices: n} }},
	}
}

// run lets a way to place meet the same requests with each of some seeds.
func run(tb testing.TB, c column, devices int, m mix, load, warm, length float64, seeds uint64) (n counts) {
	for seed := range seeds {
		n.add(churn(c.make(tb, devices), devices, m, load, warm, length, seed+1))
	}
	return n
}

// Best fit gives more than either kind of first match, and never at the cost of
// the largest profile: that is what a score that only keeps places open does.
func TestBestFitGivesMoreAndDoesNotStarveTheLargest(t *testing.T) {
	const devices, warm, length, seeds = 30, 3, 5, 2
	by := map[string]column{}
	for _, c := range columns() {
		by[c.name] = c
	}
	for _, m := range mixes {
		for _, load := range []float64{1.0, 1.2} {
			got := func(name string) counts { return run(t, by[name], devices, m, load, warm, length, seeds) }
			best, bound := got("best-fit, any layout"), got("bound: move anything")
			for _, name := range []string{"first-match, any layout", "first-match, shipped groups", "first fit, any layout"} {
				other := got(name)
				if best.slices() < other.slices() {
					t.Errorf("load %.1f of %v: best-fit gives %.1f %%, %s %.1f %%", load, m, best.slices(), name, other.slices())
				}
				if m[3] > 0 && best.kind(3) < other.kind(3) {
					t.Errorf("load %.1f of %v: best-fit gives %.1f %% of the 7g, %s %.1f %%", load, m, best.kind(3), name, other.kind(3))
				}
			}
			if best.slices() > bound.slices() {
				t.Errorf("load %.1f of %v: %.1f %% is more than can be: %.1f %%", load, m, best.slices(), bound.slices())
			}
		}
	}
}

// The policy fragmentation counts partitions in whole devices and chooses those that binpack
// does: the table of docs/benchmarks.md is of both.
func TestFragmentationGivesThePartitionsThatBinpackGives(t *testing.T) {
	for _, cut := range []func(sharing.Device) sharing.Device{
		func(d sharing.Device) sharing.Device { return d }, sharingtest.BestFit, sharingtest.Free,
		func(d sharing.Device) sharing.Device { return sharingtest.BestFit(sharingtest.Free(d)) },
	} {
		for _, m := range mixes {
			by := func(p policy.Policy) counts {
				l := node(t, 20, cut)
				l.policy = p
				return churn(l, 20, m, 1.0, 1, 4, 1)
			}
			binpack, _ := policy.Named("binpack")
			if a, b := by(policy.Fragmentation(nil)), by(binpack); a != b {
				t.Errorf("%v: fragmentation gives %v, binpack %v", m, a, b)
			}
		}
	}
}

// The goal of best fit on a hundred devices whose slices are all asked for.
func TestBestFitReachesItsGoalAtFullLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	best := columns()[4]
	for i, want := range []float64{90.0, 88.0, 91.5} {
		if got := run(t, best, 100, mixes[i], 1.0, 4, 6, 1).slices(); got < want {
			t.Errorf("%v: %.1f %%, want %.1f %%", mixes[i], got, want)
		}
	}
}

// BenchmarkChurn prints the table of docs/benchmarks.md: percent of the memory
// slices asked for that were given, and of the 7g asked for.
func BenchmarkChurn(b *testing.B) {
	for range b.N { // once, since it takes longer than any benchmark time
		fmt.Printf("\n%-5s %-19s %-28s %7s %6s\n", "load", "1g 2g 3g 7g", "how", "slices", "7g")
		for _, m := range mixes {
			for _, load := range []float64{0.8, 1.0, 1.2} {
				for _, c := range columns() {
					n := run(b, c, 100, m, load, 5, 20, 5)
					seven := "-"
					if m[3] > 0 {
						seven = fmt.Sprintf("%.1f", n.kind(3))
					}
					fmt.Printf("%-5.1f %-19s %-28s %7.1f %6s\n", load, m, c.name, n.slices(), seven)
				}
			}
		}
	}
}
