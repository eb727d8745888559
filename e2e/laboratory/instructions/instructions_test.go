// SPDX-License-Identifier: Apache-2.0

package instructions

import (
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestBenchmarksAreReadFromWhatABinaryPrints(t *testing.T) {
	got := ParseList(`goos: linux
BenchmarkPlace/fit         	 1715901	       730.0 ns/op	     176 B/op
BenchmarkBroken --- FAIL
BenchmarkFind/nodes=200,a+b 	       3	  4.1 ns/op
Benchmarking is fun, isn't it
PASS
`)
	if want := []Benchmark{{"BenchmarkPlace/fit", 1715901}, {"BenchmarkFind/nodes=200,a+b", 3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("read %v", got)
	}
}

func TestAPatternSelectsOneBenchmark(t *testing.T) {
	parts := strings.Split(Benchmark{Name: "BenchmarkFind/a+b"}.Pattern(), "/")
	for name, want := range map[string]bool{"a+b": true, "aab": false, "a+b+c": false, "xa+b": false} {
		if regexp.MustCompile(parts[1]).MatchString(name) != want {
			t.Errorf("%q selects %s: %v", parts[1], name, !want)
		}
	}
}

func TestAnOperationTakesWhatTheLongerRunHasMoreAndIsAsDoubtfulAsRunsDiffer(t *testing.T) {
	const log = "==7== Command: x\n==7==\n==7== I   refs:      %s\n"
	var counts []Count
	for _, c := range []struct {
		operations int64
		figure     string
	}{{10, "1,000,400"}, {10, "1,000,600"}, {30, "1,001,500"}} {
		n, err := ParseCount(strings.Replace(log, "%s", c.figure, 1))
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, Count{c.operations, n})
	}
	if got := PerOperation(counts[0], counts[1], counts[2]); got != (Estimate{50, 10}) {
		t.Errorf("an operation takes %v", got)
	}
}

func TestARunThatWasNotCountedIsAnError(t *testing.T) {
	for _, log := range []string{"", "valgrind: not found", "==7== I refs: many\n", "==7== I refs: \n"} {
		if n, err := ParseCount(log); err == nil {
			t.Errorf("%q: counted %d", log, n)
		}
	}
}

func TestATableShowsBothAndTheDifference(t *testing.T) {
	row := Row{"BenchmarkPlace/fit", Estimate{4000, 10}, Estimate{4100, 30}}
	if want := "BenchmarkPlace/fit: 4000 before, 4100 after: +2.5 %, within 1.0"; row.String() != want {
		t.Errorf("a row says %q", row.String())
	}
	got := Table([]Row{row, {"BenchmarkX", Estimate{}, Estimate{1, 0}}})
	for _, want := range []string{"Place/fit", "4000", "4100", "+2.5 %", "1.0", "NaN"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if percent, _ := (Row{After: Estimate{1, 0}}).Percent(); !math.IsNaN(percent) {
		t.Error("a part of nothing is a number")
	}
}
