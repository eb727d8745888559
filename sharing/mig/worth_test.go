// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
)

// model is a device on its own that is asked at random, see worth.go.
type model struct {
	slices int
	// sizes that are asked for, how often, and where they may start. A size may
	// also stand where it is not asked for.
	sizes  []int
	rates  []float64
	starts map[int][]int
	also   map[int][]int

	states []shape
	index  map[shape]int
}

func modelOf(slices int) *model {
	m := &model{slices: slices, index: map[shape]int{}, also: map[int][]int{}}
	sizes, ratio := []int{1, 2, 4, 8}, []float64{2, 3, 2, 3}
	switch slices {
	case 4:
		sizes, ratio = []int{1, 2, 4}, []float64{2, 3, 5}
		m.starts = map[int][]int{1: {0, 1, 2, 3}, 2: {0, 2}, 4: {0}}
	case 8:
		m.starts = map[int][]int{1: {0, 1, 2, 3, 4, 5, 6}, 2: {0, 2, 4}, 4: {0, 4}, 8: {0}}
		m.also[2] = []int{6} // the 1g of double memory
	}
	asked := 0.0
	for i, size := range sizes {
		asked += ratio[i] * float64(size)
	}
	for _, r := range ratio {
		m.rates = append(m.rates, 0.7*float64(slices)*r/asked)
	}
	m.sizes = sizes
	m.grow(shape{})
	return m
}

func (m *model) grow(s shape) {
	if _, seen := m.index[s]; seen {
		return
	}
	m.index[s] = len(m.states)
	m.states = append(m.states, s)
	for _, size := range m.sizes {
		for _, start := range append(m.also[size], m.starts[size]...) {
			if s.taken()&span8(start, size) == 0 {
				m.grow(s.withPartition(start, size))
			}
		}
	}
}

func span8(start, size int) uint8 { return uint8((1<<size - 1) << start) }

func (s *shape) taken() (mask uint8) {
	for start, size := range s {
		mask |= span8(start, int(size))
	}
	return mask
}

// values is the relative value of each state, that of the empty device being 0,
// by value iteration in steps in which at most one thing happens.
func (m *model) values(t *testing.T) []float64 {
	total := float64(m.slices)
	for _, r := range m.rates {
		total += r
	}
	value, next := make([]float64, len(m.states)), make([]float64, len(m.states))
	for range 20_000 {
		for i, s := range m.states {
			next[i] = m.step(s, value, total)
		}
		change, empty := 0.0, next[0]
		for i := range next {
			next[i] -= empty
			change = math.Max(change, math.Abs(next[i]-value[i]))
		}
		value, next = next, value
		if change < 1e-10 {
			return value
		}
	}
	t.Fatal("the values do not settle")
	return nil
}

// step is the value of a state after one step, as seen before it.
func (m *model) step(s shape, value []float64, total float64) float64 {
	here, left, sum := value[m.index[s]], total, 0.0
	for i, size := range m.sizes {
		best := here
		fits := false
		for _, start := range m.starts[size] {
			if s.taken()&span8(start, size) != 0 {
				continue
			}
			if v := float64(size) + value[m.index[s.withPartition(start, size)]]; !fits || v > best {
				best, fits = v, true
			}
		}
		sum += m.rates[i] * best
		left -= m.rates[i]
	}
	for start, size := range s {
		if size != 0 {
			sum += value[m.index[s.withPartition(start, 0)]]
			left--
		}
	}
	return (sum + left*here) / total
}

func TestTheWorthOfAStateIsWhatTheModelSays(t *testing.T) {
	for _, slices := range []int{4, 8} {
		m := modelOf(slices)
		table, whole := map[[2]int]int{}, 0
		for i, v := range m.values(t) {
			s := m.states[i]
			want := int(math.Round(-1000 * v))
			if got, ok := s.forecastLoss(slices, nil); !ok || int(got) != want {
				t.Errorf("%d slices, %v: the table says %d, the model %d", slices, s, got, want)
			}
			if s[0] == 8 {
				whole = want
			} else {
				table[[2]int{s.halfState(0), s.halfState(4)}] = want
			}
		}
		if t.Failed() {
			t.Fatalf("the table of %d slices, whole %d, should be\n%s", slices, whole, written(table))
		}
	}
}

// written is a table as Go. Where no state has a place in it, a single is at the
// last slice, where none can start; it counts as the one before.
func written(table map[[2]int]int) string {
	var b strings.Builder
	for low := range halves {
		b.WriteString("\t{")
		for high := range halves {
			v, ok := table[[2]int{low, high}]
			if !ok {
				v = table[[2]int{low, high - 1}]
			}
			if high > 0 {
				b.WriteString(", ")
			}
			fmt.Fprint(&b, v)
		}
		b.WriteString("},\n")
	}
	return b.String()
}

// What cannot be told apart is in use slice by slice; what lies beyond the device is not
// seen.
func TestTheShapeOfADeviceIsWhatIsInUse(t *testing.T) {
	const app = sharing.App
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	for says, c := range map[string]struct {
		held []sharing.Held
		want shape
	}{
		"nothing":                         {nil, shape{}},
		"a half and a single":             {[]sharing.Held{part("a", app, "3g.40gb", 4, 4, "x"), part("b", app, "1g.10gb", 0, 1, "x")}, shape{0: 1, 4: 4}},
		"a pair of another device":        {[]sharing.Held{part("a", app, "2g.99gb", 2, 2, "x")}, shape{2: 1, 3: 1}},
		"a half, and one that overlaps":   {[]sharing.Held{part("a", app, "3g.40gb", 0, 4, "x"), part("b", app, "2g.20gb", 2, 2, "x")}, shape{0: 4}},
		"a pair, and one half beside it":  {[]sharing.Held{part("a", app, "2g.20gb", 0, 2, "x"), part("b", app, "2g.20gb", 1, 2, "x")}, shape{0: 2, 2: 1}},
		"one that begins beyond the last": {[]sharing.Held{part("a", app, "1g.99gb", 8, 1, "x"), part("b", app, "1g.99gb", 40, 1, "x")}, shape{}},
	} {
		v := sharing.NewView(&d, c.held, sharing.Backends{New()})
		if got := shapeOf(&v); got != c.want {
			t.Errorf("%s: %v, want %v", says, got, c.want)
		}
	}
}
