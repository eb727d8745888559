// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Result is what came of one suite.
type Result uint8

// NotRun is what a suite is whose cluster did not start.
const (
	NotRun Result = iota
	Passed
	Failed
)

func (r Result) String() string {
	switch r {
	case Passed:
		return "passed"
	case Failed:
		return "FAILED"
	default:
		return "not run"
	}
}

// Run is what came of one version, by suite.
type Run struct {
	Version string
	Results map[string]Result
}

// Passed reports whether every suite passed.
func (r Run) Passed() bool {
	for _, s := range Suites() {
		if r.Results[s.Name] != Passed {
			return false
		}
	}
	return true
}

// testOfSuites is the test whose subtests are the suites.
const testOfSuites = "TestInstalledCluster"

// readResults reads what `go test -json` says, and writes to show what the tests wrote.
func readResults(events io.Reader, show io.Writer) (map[string]Result, error) {
	results := map[string]Result{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			readEvent(line, results, show)
		}
		switch err {
		case nil:
		case io.EOF:
			return results, nil
		default:
			return results, fmt.Errorf("read what go test says: %w", err)
		}
	}
}

// readEvent takes one line into the results. A line that is no event comes from go itself, a
// compiler's error for example.
func readEvent(line string, results map[string]Result, show io.Writer) {
	var event struct{ Action, Test, Output string }
	if json.Unmarshal([]byte(line), &event) != nil {
		fmt.Fprint(show, line)
		return
	}
	fmt.Fprint(show, event.Output)
	suite, isSuite := strings.CutPrefix(event.Test, testOfSuites+"/")
	if !isSuite || strings.Contains(suite, "/") {
		return
	}
	switch event.Action {
	case "pass":
		results[suite] = Passed
	case "fail":
		results[suite] = Failed
	}
}

// Table is a row for each suite and a column for each version.
func Table(runs []Run) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "suite")
	for _, r := range runs {
		fmt.Fprint(w, "\t", r.Version)
	}
	for _, s := range Suites() {
		fmt.Fprint(w, "\n", s.Name)
		for _, r := range runs {
			fmt.Fprint(w, "\t", r.Results[s.Name])
		}
	}
	fmt.Fprintln(w)
	w.Flush() // a strings.Builder takes everything
	return b.String()
}
