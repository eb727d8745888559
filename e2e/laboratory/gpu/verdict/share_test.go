// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestShare(t *testing.T) {
	five := func(v float64) []float64 { return []float64{v, v, v, v, v} }
	cases := map[string]struct {
		run  Shared
		want []string
	}{
		"exact":                         {Shared{Limit: 30, Ratios: five(0.3)}, nil},
		"at the edge":                   {Shared{Limit: 30, Ratios: five(0.3299)}, nil},
		"beyond the edge":               {Shared{Limit: 30, Ratios: five(0.335)}, []string{"ratio +3.5 points off"}},
		"below the edge":                {Shared{Limit: 70, Ratios: five(0.66)}, []string{"ratio -4.0 points off"}},
		"one window out":                {Shared{Limit: 30, Ratios: []float64{0.3, 0.3, 0.3, 0.3, 0.36}}, []string{"a window at 0.360"}},
		"one window low":                {Shared{Limit: 30, Ratios: []float64{0.24, 0.3, 0.3, 0.3, 0.3}}, []string{"a window at 0.240"}},
		"too few repeats":               {Shared{Limit: 30, Ratios: []float64{0.3}}, []string{"1 of 5 repeats"}},
		"busy as asked":                 {Shared{Limit: 30, Ratios: five(0.3), Busy: five(0.34)}, nil},
		"busier than asked":             {Shared{Limit: 30, Ratios: five(0.3), Busy: five(0.36)}, []string{"busy 36 %"}},
		"faster clock, time as it asks": {Shared{Limit: 30, Ratios: five(0.36), Busy: five(0.3), Clocks: five(1.2)}, []string{"ratio +6.0", "a window", "a window"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { misses(t, Share(OnCard(), 5, []Shared{c.run}), c.want...) })
	}
	misses(t, Share(OnCard(), 5, nil), "nothing")
	text := Share(OnCard(), 5, []Shared{{Limit: 30, Ratios: five(0.36), Clocks: five(1.2)}}).Measured
	if !strings.Contains(text, "at the bare clock 0.300") {
		t.Errorf("measured %q does not say what the ratio is at one clock", text)
	}
}

func TestShareOnTheFakeForgivesWhatABusyMachineTakes(t *testing.T) {
	misses(t, Share(OnFake(), 1, []Shared{{Limit: 70, Ratios: []float64{0.45}, Busy: []float64{1}}}))
	misses(t, Share(OnFake(), 1, []Shared{{Limit: 30, Ratios: []float64{0.6}}}), "+30.0 points")
}

func TestPair(t *testing.T) {
	run := func(first, second float64) Paired {
		return Paired{Limits: [2]int{30, 70}, Alone: []float64{10, 10}, First: []float64{first, first}, Second: []float64{second, second}}
	}
	misses(t, Pair(OnCard(), 2, run(3, 7)))
	misses(t, Pair(OnCard(), 2, run(3, 6.3)))
	misses(t, Pair(OnCard(), 2, run(3, 6)), "ratio 0.50")
	misses(t, Pair(OnCard(), 2, run(2.6, 6)), "together 0.86")
	misses(t, Pair(OnCard(), 3, run(3, 7)), "2 of 3 repeats")
	misses(t, Pair(OnCard(), 1, Paired{Limits: [2]int{30, 70}}), "0 of 1 repeats")
}

// trace makes windows of 0.1 s with these throughputs, the rival coming at `came`.
func trace(came float64, rates ...float64) Trace {
	t := Trace{Came: came}
	for i, r := range rates {
		t.Windows = append(t.Windows, Window{From: float64(i) / 10, Seconds: 0.1, Rate: r})
	}
	return t
}

func TestTraceSaysWhenTheShareIsBack(t *testing.T) {
	cases := map[string]struct {
		trace Trace
		back  time.Duration
		rest  float64
	}{
		"at once":                         {trace(0.2, 1, 1, 0.3, 0.3), 100 * time.Millisecond, 0.3},
		"after one window":                {trace(0.2, 1, 1, 1, 0.3, 0.3), 200 * time.Millisecond, 0.3},
		"in the middle of a window":       {trace(0.25, 1, 1, 0.6, 0.3, 0.3), 150 * time.Millisecond, 0.3},
		"one window above does not count": {trace(0.2, 1, 1, 0.3, 0.3, 0.5, 0.3), 100 * time.Millisecond, 0.35},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			back, rest := c.trace.Back(0.35, 1)
			if (back-c.back).Abs() > time.Microsecond || math.Abs(rest-c.rest) > 1e-9 {
				t.Errorf("back after %v at %.3f, want %v at %.3f", back, rest, c.back, c.rest)
			}
		})
	}
	if back, _ := trace(0.2, 1, 1, 1, 1).Back(0.35, 1); back < time.Hour {
		t.Errorf("never back, and yet after %v", back)
	}
	if alone := trace(0.31, 0.2, 1, 0.8, 0.3).Alone(1); math.Abs(alone-0.9) > 1e-9 {
		t.Errorf("alone %.3f: the first window and those after the rival are not part of it", alone)
	}
}

func TestBorrow(t *testing.T) {
	run := func(rates ...float64) Borrowed {
		return Borrowed{Limit: 30, Bare: []float64{1}, Runs: []Trace{trace(0.3, rates...)}}
	}
	misses(t, Borrow(OnCard(), 1, run(1, 1, 1, 0.3, 0.3, 0.3)))
	misses(t, Borrow(OnCard(), 1, run(1, 0.9, 0.9, 0.3, 0.3, 0.3)), "alone 0.900")
	misses(t, Borrow(OnCard(), 1, run(1, 1, 1, 1, 1, 1, 1, 1, 0.3, 0.3)), "back after 0.60 s")
	misses(t, Borrow(OnCard(), 1, run(1, 1, 1, 0.2, 0.2, 0.2)), "then 0.200")
	misses(t, Borrow(OnCard(), 1, run(1, 1, 1, 1, 1)), "back after", "then NaN")
	misses(t, Borrow(OnCard(), 2, run(1, 1, 1, 0.3)), "1 of 2 repeats")
}

func TestCost(t *testing.T) {
	bare := []float64{100, 110, 400}
	misses(t, Cost("call", 20, 3, bare, []float64{119, 131, 419}))
	misses(t, Cost("call", 20, 3, bare, []float64{121, 132, 410}), "+21.0 ns")
	misses(t, Cost("call", 20, 4, bare, []float64{100, 110, 400}), "3 of 4 rounds")
	misses(t, Cost("call", 20, 1, nil, nil), "0 of 1 rounds")
}

func TestOverhead(t *testing.T) {
	misses(t, Overhead(OnCard(), 3, []float64{100, 100, 100}, []float64{99.1, 99.5, 90}))
	misses(t, Overhead(OnCard(), 3, []float64{100, 100, 100}, []float64{98, 98, 101}), "2.00 % slower")
	misses(t, Overhead(OnCard(), 3, []float64{100}, []float64{100}), "1 of 3 pairs")
}

func TestRow(t *testing.T) {
	cases := map[string]struct {
		finding Finding
		want    Row
	}{
		"held":   {Finding{Criterion: "c", Measured: "m"}, Row{3, "n", "m", "c", Held, "", 0}},
		"missed": {Finding{Criterion: "c", Measured: "m", Misses: []string{"a", "b"}}, Row{3, "n", "m", "c", Missed, "a; b", 0}},
		"noted":  {Note("%d ns", 5), Row{3, "n", "5 ns", "reported", Noted, "", 0}},
	}
	for name, c := range cases {
		if got := c.finding.Row(3, "n"); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	cases := map[string]struct {
		values []float64
		q      float64
		want   float64
	}{
		"the middle of three":  {[]float64{3, 1, 2}, 0.5, 2},
		"between two":          {[]float64{1, 2}, 0.5, 1.5},
		"the last":             {[]float64{5, 9, 7}, 1, 9},
		"the first":            {[]float64{5, 9, 7}, 0, 5},
		"one alone":            {[]float64{4}, 0.99, 4},
		"a quarter of the way": {[]float64{0, 4, 8, 12, 16}, 0.25, 4},
	}
	for name, c := range cases {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
	values := []float64{3, 1, 2}
	Median(values)
	if values[0] != 3 {
		t.Error("Median sorts its argument")
	}
	if got := Ratios([]float64{1, 2, 3}, []float64{2, 0}); len(got) != 1 || got[0] != 0.5 {
		t.Errorf("ratios %v: nothing divides by zero, and the shorter one ends it", got)
	}
}
