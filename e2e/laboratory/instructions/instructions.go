// SPDX-License-Identifier: Apache-2.0

// Package instructions reads how many instructions of the processor the operations of benchmarks
// take. On a machine that is shared, times differ by a tenth from one run to the next; these by
// less than a hundredth, unless a benchmark prepares much and repeats little.
package instructions

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Benchmark is one of a test binary, and how often it repeats its operation in a given time.
type Benchmark struct {
	Name       string // "BenchmarkPlace/fit"
	Operations int
}

// ParseList reads what a test binary prints that runs benchmarks on one processor. Other lines are
// left out.
func ParseList(output string) (list []Benchmark) {
	for line := range strings.Lines(output) {
		words := strings.Fields(line)
		if len(words) < 3 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		if n, err := strconv.Atoi(words[1]); err == nil && n > 0 {
			list = append(list, Benchmark{words[0], n})
		}
	}
	return list
}

// Pattern selects this benchmark and no other.
func (b Benchmark) Pattern() string {
	parts := strings.Split(b.Name, "/")
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	return strings.Join(parts, "/")
}

// Count is one run: how often it repeated the operation, and the instructions of its whole process.
type Count struct{ Operations, Instructions int64 }

// ParseCount reads the instructions from what valgrind's cachegrind says of a process.
func ParseCount(log string) (int64, error) {
	for line := range strings.Lines(log) {
		words := strings.Fields(line) // ==7== I refs: 1,234
		if len(words) < 4 || words[1] != "I" || words[2] != "refs:" {
			continue
		}
		n, err := strconv.ParseInt(strings.ReplaceAll(words[3], ",", ""), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %q of cachegrind: %w", strings.TrimSpace(line), err)
		}
		return n, nil
	}
	return 0, errors.New("cachegrind counted nothing")
}

// Estimate is how many instructions an operation takes, and by how much that may be wrong.
type Estimate struct{ Value, Doubt float64 }

// PerOperation estimates an operation by two runs of one length and a longer one: whatever comes
// before and after the operations is in all. Runs of one length differ by the seeds of their maps.
func PerOperation(first, second Count, long Count) Estimate {
	more := float64(long.Operations - first.Operations)
	before := float64(first.Instructions+second.Instructions) / 2
	return Estimate{(float64(long.Instructions) - before) / more, math.Abs(float64(first.Instructions-second.Instructions)) / more}
}

// Row is what an operation takes before and after a change.
type Row struct {
	Name          string
	Before, After Estimate
}

// Percent is by how much it takes more, and by how much that may be wrong; not numbers if it took
// nothing before.
func (r Row) Percent() (percent, doubt float64) {
	if r.Before.Value <= 0 {
		return math.NaN(), math.NaN()
	}
	return 100 * (r.After.Value/r.Before.Value - 1), 100 * (r.Before.Doubt + r.After.Doubt) / r.Before.Value
}

// String is the row as a sentence.
func (r Row) String() string {
	percent, doubt := r.Percent()
	return fmt.Sprintf("%s: %.0f before, %.0f after: %+.1f %%, within %.1f", r.Name, r.Before.Value, r.After.Value, percent, doubt)
}

// Table writes rows for people.
func Table(rows []Row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "benchmark\tbefore\tafter\t\twithin\t")
	for _, r := range rows {
		percent, doubt := r.Percent()
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%+.1f %%\t%.1f\t\n", strings.TrimPrefix(r.Name, "Benchmark"), r.Before.Value, r.After.Value, percent, doubt)
	}
	_ = w.Flush() // into memory
	return b.String()
}
