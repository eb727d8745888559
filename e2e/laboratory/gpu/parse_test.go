// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

func TestChoose(t *testing.T) {
	cases := map[string]struct {
		text string
		want []int
		err  string
	}{
		"nothing is all":          {"", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, ""},
		"one":                     {"7", []int{7}, ""},
		"several in plan's order": {"8, 7", []int{7, 8}, ""},
		"a range":                 {"1-3,13", []int{1, 2, 3, 13}, ""},
		"twice is once":           {"1-2,2", []int{1, 2}, ""},
		"a word":                  {"all", nil, `"all" is no number from 0 to 15`},
		"too high":                {"16", nil, "from 0 to 15"},
		"backwards":               {"3-1", nil, `"3-1"`},
		"open range":              {"3-", nil, `"3-"`},
		"negative":                {"-1", nil, `"-1"`},
		"an empty part":           {"1,,2", nil, `""`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose(experiments(), c.text)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one that says %s", err, c.err)
				}
				return
			}
			var got []int
			for _, e := range chosen {
				got = append(got, e.number)
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("chose %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

func TestExperimentsHaveTheNumbersOfThePlan(t *testing.T) {
	for i, e := range experiments() {
		if e.number != i || e.title == "" || e.limit <= 0 || e.run == nil {
			t.Errorf("experiment %d: %+v", i, e)
		}
	}
}

func TestProcessRows(t *testing.T) {
	cases := map[string]map[int]int64{
		"processes=11:5,12:6": {11: 5, 12: 6},
		"processes=":          {},
		"total=4":             {},
		"processes=x:1,3:y":   {},
	}
	for text, want := range cases {
		if got := processRows(tenant.Answer(text)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	got := columns("8192, 518\nNo devices were found\n7, [N/A]\n1234, 1030\n\n")
	if want := [][2]int64{{8192, 518}, {1234, 1030}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWindowsOf(t *testing.T) {
	got, err := windowsOf("0.0000:0.1010:7601.80,0.1010:0.1012:7592.46")
	want := []verdict.Window{{From: 0, Seconds: 0.1010, Rate: 7601.80}, {From: 0.1010, Seconds: 0.1012, Rate: 7592.46}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v (%v), want %v", got, err, want)
	}
	for _, bad := range []string{"", "1:2", "1:2:x", "1:2:3:4"} {
		if _, err := windowsOf(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func TestNewestRuntime(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"libcudart.so.9.2", "libcudart.so.13.0.96", "libcudart.so.12.8"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := newestRuntime(filepath.Join(dir, "none*"), filepath.Join(dir, "libcudart.so.*")); filepath.Base(got) != "libcudart.so.13.0.96" {
		t.Errorf("newest is %q", got)
	}
	if got := newestRuntime(filepath.Join(dir, "none*")); got != "" {
		t.Errorf("without any: %q", got)
	}
}

func TestSharedDividesByTheBareRunOfTheSameRound(t *testing.T) {
	got := shared([]int{30, 70}, [][]seen{
		{{rate: 100, mhz: 1000}, {rate: 30, busy: 31, mhz: 1100}, {rate: 70}},
		{{rate: 200}, {rate: 60}, {rate: 150}},
	})
	want := []verdict.Shared{
		{Limit: 30, Ratios: []float64{0.3, 0.3}, Busy: []float64{0.31}, Clocks: []float64{1.1}},
		{Limit: 70, Ratios: []float64{0.7, 0.75}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestProcessFunctionsInALogOfSymbols(t *testing.T) {
	log := "  123:\tsymbol=nvmlDeviceGetComputeRunningProcesses_v3;  lookup in file=/x\n symbol=nvmlInit_v2; \n symbol=nvmlSystemGetProcessName; "
	var got []string
	for _, m := range processFunction.FindAllStringSubmatch(log, -1) {
		got = append(got, m[1])
	}
	if want := []string{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlSystemGetProcessName"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTableAndJSON(t *testing.T) {
	rows := []verdict.Row{
		{Experiment: 1, Name: "a|b", Measured: "5\n6", Criterion: "c", Result: verdict.Held},
		{Experiment: 2, Name: "x", Result: verdict.Skipped, Why: "no card"},
	}
	a := about{Fake: true, GPU: "G", Driver: "580", Commit: "abc", Clocks: "SM 1980 MHz"}
	text := markdown(a, rows)
	for _, want := range []string{"FAKE DRIVER", "measured (fake)", "| 1 | a/b | 5 6 | c | held |", "| 2 | x |  |  | skipped: no card |", "1 held, 0 missed, 1 skipped, 0 noted", "driver 580", "commit: abc", "SM 1980 MHz"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := markdown(about{}, nil); strings.Contains(strings.ToLower(text), "fake") {
		t.Errorf("a run on a card speaks of a fake:\n%s", text)
	}
	path := filepath.Join(t.TempDir(), "out.json")
	if err := writeJSON(path, a, rows); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version int
		About   about
		Rows    []verdict.Row
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || got.Version != 1 || got.About != a || !reflect.DeepEqual(got.Rows, rows) {
		t.Errorf("read back %+v, %v", got, err)
	}
}
