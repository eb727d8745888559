// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
)

// Turn is what a decoder of tokens did in one turn. Times are milliseconds: of a prompt and of a
// token by their medians, Tail is the 99th percentile of a token. Rate is tokens in a second.
type Turn struct {
	Rate, First, Device, Wall, Tail float64
}

// Decode wants a token to take nearly as long as bare by the host's clock, until the host knows it.
// What counts is the median of the ratios within a round. It decides only if there are enough
// rounds, and each is close to that median. On the fake driver it only reports, as all of this
// file.
func Decode(b Bounds, rounds int, bare, ours []Turn) Finding {
	wall := Ratios(each(ours, wallOf), each(bare, wallOf))
	more := Median(wall)
	f := Finding{
		Criterion: fmt.Sprintf("at most %s longer; undecided unless %d rounds are within ±%s of the median", points(b.Overhead), rounds, points(b.Agreement)),
		Measured: fmt.Sprintf("a token: bare %.3f ms, ours %.3f ms, %+.2f %% (ratios %s), by the device's clock %+.2f %%; p99 %.3f and %.3f ms; prompt %.1f and %.1f ms",
			Median(each(bare, wallOf)), Median(each(ours, wallOf)), (more-1)*100, span(wall, "%.4f"),
			(Median(Ratios(each(ours, deviceOf), each(bare, deviceOf)))-1)*100,
			Median(each(bare, tailOf)), Median(each(ours, tailOf)), Median(each(bare, firstOf)), Median(each(ours, firstOf))),
	}
	if b.Fake {
		return Note("%s", f.Measured)
	}
	if len(wall) < rounds {
		f.Undecided = fmt.Sprintf("%d of %d rounds", len(wall), rounds)
		return f
	}
	for i, r := range wall {
		if math.Abs(r/more-1) > b.Agreement {
			f.Undecided = fmt.Sprintf("round %d is %+.2f %% from the median", i+1, (r/more-1)*100)
			return f
		}
	}
	if more-1 > b.Overhead {
		f.miss("%.2f %% longer", (more-1)*100)
	}
	return f
}

// ShareOfTokens is Share, with the mean error of the limits.
func ShareOfTokens(b Bounds, fewest int, runs []Shared) Finding {
	f := Share(b, fewest, runs)
	sum := 0.0
	for _, r := range runs {
		sum += math.Abs(Median(r.Ratios) - float64(r.Limit)/100)
	}
	if len(runs) > 0 {
		f.Measured += fmt.Sprintf("; mean absolute error %.1f points", sum/float64(len(runs))*100)
	}
	if b.Fake {
		return Note("%s", f.Measured)
	}
	return f
}

// PairedTurns is Paired for decoders. Limits of 0 promise nothing.
type PairedTurns struct {
	Limits               [2]int // percent
	Alone, First, Second []Turn
}

// PairOfTurns is Pair for decoders, with the slowest tokens alone and beside the other one. Without
// limits it only reports.
func PairOfTurns(b Bounds, fewest int, m PairedTurns) Finding {
	f := Pair(b, fewest, Paired{Limits: m.Limits, Alone: each(m.Alone, rateOf), First: each(m.First, rateOf), Second: each(m.Second, rateOf)})
	f.Measured += fmt.Sprintf("; p99 of a token %.3f ms alone, %.3f and %.3f ms at once",
		Median(each(m.Alone, tailOf)), Median(each(m.First, tailOf)), Median(each(m.Second, tailOf)))
	if b.Fake || m.Limits == [2]int{} {
		return Note("%s", f.Measured)
	}
	return f
}

func rateOf(t Turn) float64   { return t.Rate }
func firstOf(t Turn) float64  { return t.First }
func deviceOf(t Turn) float64 { return t.Device }
func wallOf(t Turn) float64   { return t.Wall }
func tailOf(t Turn) float64   { return t.Tail }

func each(turns []Turn, part func(Turn) float64) []float64 {
	out := make([]float64, len(turns))
	for i, t := range turns {
		out[i] = part(t)
	}
	return out
}
