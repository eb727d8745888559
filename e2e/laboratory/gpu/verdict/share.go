// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Shared is one workload under one limit, in several repeats.
type Shared struct {
	Limit  int       // percent
	Ratios []float64 // throughput over the bare one of the same round
	Busy   []float64 // NVML's utilisation, 0 to 1; none where it could not be had
	// Clocks of the card while it ran so, over those of the bare runs; none likewise.
	Clocks []float64
}

// Share wants throughput in the proportion of the limit, in every window nearly so,
// and NVML to see the device work for that part of the time. fewest is how many
// repeats make a result.
func Share(b Bounds, fewest int, runs []Shared) Finding {
	f := Finding{Criterion: fmt.Sprintf("ratio = limit %s points, each window %s", b.Ratio.points(), b.Window.points())}
	if !b.Fake {
		f.Criterion += fmt.Sprintf(", NVML's utilisation ±%.0f", b.Busy*100)
	}
	var texts []string
	for _, r := range runs {
		want, got := float64(r.Limit)/100, Median(r.Ratios)
		text := fmt.Sprintf("%d %%: %.3f (%s)", r.Limit, got, span(r.Ratios, "%.3f"))
		if len(r.Busy) > 0 {
			text += fmt.Sprintf(", busy %.0f %%", Median(r.Busy)*100)
		}
		if c := Median(r.Clocks); len(r.Clocks) > 0 && math.Abs(c-1) > 0.01 {
			text += fmt.Sprintf(", at the bare clock %.3f", got/c)
		}
		texts = append(texts, text)
		if len(r.Ratios) < fewest {
			f.miss("%d %%: %d of %d repeats", r.Limit, len(r.Ratios), fewest)
			continue
		}
		if off := got - want; !b.Ratio.has(off) {
			f.miss("%d %%: ratio %+.1f points off", r.Limit, off*100)
		}
		for _, edge := range []float64{slices.Min(r.Ratios), slices.Max(r.Ratios)} {
			if !b.Window.has(edge - want) {
				f.miss("%d %%: a window at %.3f", r.Limit, edge)
			}
		}
		if busy := Median(r.Busy); !b.Fake && len(r.Busy) > 0 && math.Abs(busy-want) > b.Busy {
			f.miss("%d %%: busy %.0f %% of the time", r.Limit, busy*100)
		}
	}
	f.Measured = strings.Join(texts, "; ")
	if len(runs) == 0 {
		f.Measured = "nothing"
		f.miss("nothing was run")
	}
	return f
}

// Paired is two tenants that want all of the device at once, in several repeats.
type Paired struct {
	Limits        [2]int // percent
	Alone         []float64
	First, Second []float64 // throughput of each while both run
}

// Pair wants their throughput in the proportion of their limits and together nearly
// what one alone gets.
func Pair(b Bounds, fewest int, m Paired) Finding {
	want := float64(m.Limits[0]) / float64(m.Limits[1])
	both := make([]float64, min(len(m.First), len(m.Second)))
	for i := range both {
		both[i] = m.First[i] + m.Second[i]
	}
	ratios, sums := Ratios(m.First, m.Second), Ratios(both, m.Alone)
	f := Finding{
		Criterion: fmt.Sprintf("ratio %.2f ±%.2f, together at least %.0f %% of one alone", want, b.PairRatio, b.PairTotal*100),
		Measured: fmt.Sprintf("%.3f and %.3f of one alone, ratio %.2f (%s), together %.2f (%s)",
			Median(Ratios(m.First, m.Alone)), Median(Ratios(m.Second, m.Alone)),
			Median(ratios), span(ratios, "%.2f"), Median(sums), span(sums, "%.2f")),
	}
	if len(sums) < fewest || len(ratios) < fewest {
		f.miss("%d of %d repeats", min(len(sums), len(ratios)), fewest)
		return f
	}
	if math.Abs(Median(ratios)-want) > b.PairRatio {
		f.miss("ratio %.2f", Median(ratios))
	}
	if Median(sums) < b.PairTotal {
		f.miss("together %.2f", Median(sums))
	}
	return f
}

// Window is the throughput of a part of a trace. From is seconds after its beginning.
type Window struct{ From, Seconds, Rate float64 }

// Borrowed is a tenant that had the device alone with its limit lifted until a rival
// came, in several repeats.
type Borrowed struct {
	Limit int // percent
	Bare  []float64
	Runs  []Trace
}

// Trace is one of them. Came is when the limit was switched on again, in seconds.
type Trace struct {
	Came    float64
	Windows []Window
}

// Back is how long after the rival came throughput fell to the share for good, the
// end of the first window from which on no two in a row are above; and the mean of
// the windows from there on, over bare. It is infinite if that never happened.
func (t Trace) Back(share, bare float64) (time.Duration, float64) {
	var after []Window
	for _, w := range t.Windows {
		if w.From >= t.Came {
			after = append(after, w)
		}
	}
	first := len(after)
	for i := len(after) - 1; i >= 0; i-- {
		if after[i].Rate/bare > share && (i == 0 || after[i-1].Rate/bare > share) {
			break
		}
		first = i
	}
	if first == len(after) {
		return math.MaxInt64, math.NaN()
	}
	var sum float64
	for _, w := range after[first:] {
		sum += w.Rate / bare
	}
	end := after[first].From + after[first].Seconds - t.Came
	return time.Duration(end * float64(time.Second)), sum / float64(len(after)-first)
}

// Alone is the mean throughput before the rival came, over bare. The first window is
// left out: programs start in it.
func (t Trace) Alone(bare float64) float64 {
	var sum float64
	n := 0
	for i, w := range t.Windows {
		if i > 0 && w.From+w.Seconds <= t.Came {
			sum += w.Rate / bare
			n++
		}
	}
	return sum / float64(n) // NaN of none
}

// Borrow wants nearly all of the device while alone, and the share soon after.
func Borrow(b Bounds, fewest int, m Borrowed) Finding {
	share := float64(m.Limit) / 100
	var alone, back, rest []float64
	bare := Median(m.Bare)
	for _, t := range m.Runs {
		alone = append(alone, t.Alone(bare))
		took, mean := t.Back(share+b.BorrowShare, bare)
		back, rest = append(back, took.Seconds()), append(rest, mean)
	}
	f := Finding{
		Criterion: fmt.Sprintf("at least %s alone, back to %d %% (±%.0f points) within %.1f s", points(b.BorrowAlone), m.Limit,
			b.BorrowShare*100, b.BorrowBack.Seconds()),
		Measured: fmt.Sprintf("alone %.3f (%s), then %.3f (%s) after %.2f s (%s)", Median(alone), span(alone, "%.3f"),
			Median(rest), span(rest, "%.3f"), Median(back), span(back, "%.2f")),
	}
	if len(m.Runs) < fewest {
		f.miss("%d of %d repeats", len(m.Runs), fewest)
		return f
	}
	if !(Median(alone) >= b.BorrowAlone) {
		f.miss("alone %.3f", Median(alone))
	}
	if !(Median(back) <= b.BorrowBack.Seconds()) {
		f.miss("back after %.2f s", Median(back))
	}
	if !(math.Abs(Median(rest)-share) <= b.BorrowShare) {
		f.miss("then %.3f", Median(rest))
	}
	return f
}
