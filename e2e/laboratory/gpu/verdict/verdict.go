// SPDX-License-Identifier: Apache-2.0

// Package verdict decides whether the result of an experiment of the GPU suite is good
// enough. Its functions are pure: they take numbers and return findings. The criteria are
// those of the suite's plan. A run on the fake driver gets wider bounds, because it exercises
// the logic and not the numbers.
package verdict

import (
	"fmt"
	"strings"
)

// Result of one row.
type Result string

// Results. Noted is a figure without a criterion, Undecided one too uncertain for its criterion.
const (
	Held    Result = "held"
	Missed  Result = "missed"
	Skipped Result = "skipped"
	Noted   Result = "noted"

	Undecided Result = "undecided"
)

// Finding is what one measurement came to.
type Finding struct {
	Criterion string
	Measured  string
	Misses    []string // what is not as the criterion wants it; none: held
	Note      bool     // there is no criterion
	Undecided string   // why the figures decide nothing; "": they do
}

// Row is one line of the suite's table.
type Row struct {
	Experiment int     `json:"experiment"`
	Name       string  `json:"name"`
	Measured   string  `json:"measured"`
	Criterion  string  `json:"criterion"`
	Result     Result  `json:"result"`
	Why        string  `json:"why,omitempty"` // of what is missed, skipped or undecided
	Seconds    float64 `json:"seconds"`
}

// Row makes a line of the finding.
func (f Finding) Row(experiment int, name string) Row {
	row := Row{Experiment: experiment, Name: name, Measured: f.Measured, Criterion: f.Criterion, Result: Held}
	switch {
	case len(f.Misses) > 0:
		row.Result, row.Why = Missed, strings.Join(f.Misses, "; ")
	case f.Undecided != "":
		row.Result, row.Why = Undecided, f.Undecided
	case f.Note:
		row.Result = Noted
	}
	return row
}

func (f *Finding) miss(format string, args ...any) {
	f.Misses = append(f.Misses, fmt.Sprintf(format, args...))
}

// Note is a finding without a criterion.
func Note(format string, args ...any) Finding {
	return Finding{Criterion: "reported", Measured: fmt.Sprintf(format, args...), Note: true}
}

// MiB is the unit of amounts in texts.
const MiB = int64(1) << 20

// mib writes bytes in MiB, with decimals only where they are.
func mib(bytes int64) string {
	if bytes%MiB == 0 {
		return fmt.Sprintf("%d MiB", bytes/MiB)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/float64(MiB))
}

// points writes a fraction as percent.
func points(fraction float64) string { return fmt.Sprintf("%.1f %%", fraction*100) }
