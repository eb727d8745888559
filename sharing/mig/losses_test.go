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

// oracle is a device on its own, slice by slice: it knows shapes and legal starts, and nothing of
// halves and pairs.
type oracle struct {
	slices int
	asked  map[int]float64 // weight by size
	starts map[int][]int
	states map[shape]float64 // what the device gives from a shape on
}

func newOracle(slices int, asked map[int]float64) *oracle {
	o := &oracle{slices: slices, asked: asked, states: map[shape]float64{}}
	o.starts = map[int][]int{1: {0, 1, 2, 3, 4, 5, 6}, 2: {0, 2, 4}, 4: {0, 4}, 8: {0}}
	if slices == 4 {
		o.starts = map[int][]int{1: {0, 1, 2, 3}, 2: {0, 2}, 4: {0}}
	}
	o.addShape(shape{})
	return o
}

// addShape adds a shape and all that requests lead to, and the 1g of double memory at slice 6,
// which stands there though that size is not asked for there.
func (o *oracle) addShape(s shape) {
	if _, seen := o.states[s]; seen {
		return
	}
	o.states[s] = 0
	for size, starts := range o.starts {
		if size == 2 && o.slices == 8 {
			starts = append([]int{6}, starts...)
		}
		for _, start := range starts {
			if s.taken()&span8(start, size) == 0 {
				o.addShape(s.withPartition(start, size))
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

// look looks one more event ahead from every shape. Requests ask for all slices while a partition
// stays, and each partition leaves at rate 1; the rest of the time nothing happens.
func (o *oracle) look() {
	sum, all := 0.0, float64(o.slices)
	for size, w := range o.asked {
		sum += w * float64(size)
	}
	for _, w := range o.asked {
		all += float64(o.slices) * w / sum
	}
	next := map[shape]float64{}
	for s, here := range o.states {
		gain := 0.0
		for size, w := range o.asked {
			best := math.Inf(-1)
			for _, start := range o.starts[size] {
				if s.taken()&span8(start, size) == 0 {
					best = max(best, float64(size)+o.states[s.withPartition(start, size)]-here)
				}
			}
			if !math.IsInf(best, -1) {
				gain += float64(o.slices) * w / sum * best
			}
		}
		for start, size := range s {
			if size != 0 {
				gain += o.states[s.withPartition(start, 0)] - here
			}
		}
		next[s] = here + gain/all
	}
	o.states = next
}

// The tables are what a device gives less from each shape on, as the oracle finds it.
func TestLossesAreWhatIsLookedAhead(t *testing.T) {
	for says, c := range map[string]struct {
		slices int
		asked  map[int]float64
		table  *losses
	}{
		"8 slices, nothing learned": {8, map[int]float64{1: 4, 2: 7, 4: 6, 8: 10}, usual8},
		"4 slices, nothing learned": {4, map[int]float64{1: 4, 2: 7, 4: 16}, usual4},
		"8 slices, 1g and 7g":       {8, map[int]float64{1: 3, 8: 1}, lossesFor(8, bySize{3, 0, 0, 1})},
		"8 slices, no 7g":           {8, map[int]float64{1: 4, 2: 3, 4: 3}, lossesFor(8, bySize{4, 3, 3})},
		"4 slices, 1g and 2g":       {4, map[int]float64{1: 1, 2: 1}, lossesFor(4, bySize{1, 1})},
	} {
		o := newOracle(c.slices, c.asked)
		for range eventsAhead {
			o.look()
		}
		for s, v := range o.states {
			want := 1000 * (o.states[shape{}] - v)
			if got := c.table.shapeLoss(&s); math.Abs(float64(got)-want) > 0.51 {
				t.Fatalf("%s: %v loses %d, want %.2f", says, s, got, want)
			}
		}
	}
}

func TestUsualLossesAreWhatIsLookedAhead(t *testing.T) {
	for slices, usual := range map[int]*losses{4: usual4, 8: usual8} {
		if now := lossesFor(slices, weightsFor(slices, bySize{1, 1, 1, 1})); *now != *usual {
			t.Errorf("usual.go is not what lossesFor says; the table of %d slices, whole %d:\n%s", slices, now.whole, written(now))
		}
	}
}

// written is a table as Go.
func written(l *losses) string {
	var b strings.Builder
	for _, row := range l.halves {
		b.WriteString("\t{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(row), " ", ", "), "[]") + "},\n")
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
