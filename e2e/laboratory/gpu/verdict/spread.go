// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
	"slices"
)

// Median of the values; NaN of none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile q, from 0 to 1, of the values; the middle of two where it falls between.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

// Ratios divides pairwise, first by second, as far as both go. A pair with nothing
// to divide by is left out.
func Ratios(first, second []float64) []float64 {
	var out []float64
	for i := range min(len(first), len(second)) {
		if second[i] > 0 {
			out = append(out, first[i]/second[i])
		}
	}
	return out
}

// Differences subtracts pairwise, first less second.
func Differences(first, second []float64) []float64 {
	var out []float64
	for i := range min(len(first), len(second)) {
		out = append(out, first[i]-second[i])
	}
	return out
}

// span writes the least and the greatest value.
func span(values []float64, format string) string {
	if len(values) == 0 {
		return "nothing"
	}
	return fmt.Sprintf(format+"–"+format, slices.Min(values), slices.Max(values))
}
