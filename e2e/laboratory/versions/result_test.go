// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"maps"
	"strings"
	"testing"
)

func TestReadResults(t *testing.T) {
	events := `{"Action":"output","Test":"TestInstalledCluster","Output":"starting\n"}
{"Action":"pass","Test":"TestInstalledCluster/placement","Elapsed":1}
{"Action":"fail","Test":"TestInstalledCluster/identity/round_1","Elapsed":1}
{"Action":"fail","Test":"TestInstalledCluster/identity","Elapsed":1}
a line of the compiler
{"Action":"skip","Test":"TestInstalledCluster/chart"}
{"Action":"fail","Test":"TestInstalledCluster"}
{"Action":"fail","Package":"deviceshare/e2e/suites"}`
	var shown strings.Builder
	got, err := readResults(strings.NewReader(events), &shown)
	if want := map[string]Result{"placement": Passed, "identity": Failed}; err != nil || !maps.Equal(got, want) {
		t.Errorf("read %v, %v; want %v", got, err, want)
	}
	if want := "starting\na line of the compiler\n"; shown.String() != want {
		t.Errorf("shown is %q, want %q", shown.String(), want)
	}
}

func TestARunPassesIfEverySuiteDid(t *testing.T) {
	r := Run{Version: "1.33.13", Results: map[string]Result{}}
	for _, s := range Suites() {
		if r.Passed() {
			t.Fatalf("passed without %s", s.Name)
		}
		r.Results[s.Name] = Passed
	}
	if !r.Passed() {
		t.Error("not passed, though every suite did")
	}
	r.Results["identity"] = Failed
	if r.Passed() {
		t.Error("passed, though a suite failed")
	}
}

func TestTable(t *testing.T) {
	table := Table([]Run{
		{"1.33.13", map[string]Result{"placement": Passed, "isolation": Failed}},
		{"1.35.4", nil},
	})
	for _, line := range []string{"suite              1.33.13  1.35.4\n", "placement          passed   not run\n", "isolation          FAILED   not run\n"} {
		if !strings.Contains(table, line) {
			t.Errorf("no line %q in\n%s", line, table)
		}
	}
	if n := strings.Count(table, "\n"); n != len(Suites())+1 {
		t.Errorf("%d lines, want one for each suite and the head", n)
	}
}
