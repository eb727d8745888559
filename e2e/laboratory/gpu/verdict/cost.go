// SPDX-License-Identifier: Apache-2.0

package verdict

import "fmt"

// Cost wants a call to take at most `bound` nanoseconds more than bare. Values are
// nanoseconds of interleaved rounds; what counts is the median of their differences.
func Cost(what string, bound float64, fewest int, bare, ours []float64) Finding {
	more := Differences(ours, bare)
	f := Finding{
		Criterion: fmt.Sprintf("at most +%.0f ns", bound),
		Measured: fmt.Sprintf("%s: bare %.0f ns, ours %.0f ns, difference %+.1f ns (half of %d rounds within %+.1f to %+.1f)", what,
			Median(bare), Median(ours), Median(more), len(more), Quantile(more, 0.25), Quantile(more, 0.75)),
	}
	if len(more) < fewest {
		f.miss("%d of %d rounds", len(more), fewest)
		return f
	}
	if Median(more) > bound {
		f.miss("%+.1f ns", Median(more))
	}
	return f
}

// Overhead wants throughput with the library and no limit on compute to be that of
// the bare driver. Values are rates of paired runs.
func Overhead(b Bounds, fewest int, bare, ours []float64) Finding {
	ratios := Ratios(ours, bare)
	loss := 1 - Median(ratios)
	f := Finding{
		Criterion: fmt.Sprintf("at most %s slower, median of %d pairs", points(b.Overhead), fewest),
		Measured:  fmt.Sprintf("%+.2f %% of throughput (ratios %s)", -loss*100, span(ratios, "%.4f")),
	}
	if len(ratios) < fewest {
		f.miss("%d of %d pairs", len(ratios), fewest)
		return f
	}
	if loss > b.Overhead {
		f.miss("%.2f %% slower", loss*100)
	}
	return f
}
