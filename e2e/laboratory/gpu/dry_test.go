// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/laboratory/gpu/tenant"
	"deviceshare/e2e/laboratory/gpu/verdict"
)

// TestMain lets this test be the program that tenants are entered with.
func TestMain(m *testing.M) {
	tenant.Enter()
	os.Exit(m.Run())
}

// dryRows are the rows of a run on the fake driver. `timed` ones hold on a machine that lets
// programs run when they want to; on another one they have to be measured, and what they come to is
// no failure: how exactly a share is held is tested on the fake's own clock.
var dryRows = []struct {
	experiment int
	name       string
	want       verdict.Result
	timed      bool
}{
	{0, "device and memory, by CUDA and NVML", verdict.Held, false},
	{0, "nvidia-smi", verdict.Skipped, false},
	{0, "a product of matrices by PyTorch", verdict.Skipped, false},
	{0, "the device plugin's inventory", verdict.Skipped, false},
	{1, "8 GiB: what is seen", verdict.Held, false},
	{1, "8 GiB: pieces of 2 MiB", verdict.Held, false},
	{1, "odd sizes, 1000 × 4 KiB", verdict.Held, false},
	{1, "ways in", verdict.Held, false},
	{1, "kinds of memory", verdict.Held, false},
	{1, "environment against file", verdict.Held, false},
	{2, "default pool", verdict.Held, false},
	{2, "private pool", verdict.Held, false},
	{3, "a handle of 512 MiB, released while mapped", verdict.Held, false},
	{4, "by the driver API: refused, freed, and on", verdict.Held, false},
	{4, "PyTorch, default", verdict.Skipped, false},
	{4, "PyTorch, expandable segments", verdict.Skipped, false},
	{4, "PyTorch, cudaMallocAsync", verdict.Skipped, false},
	{4, "PyTorch full: own count", verdict.Skipped, false},
	{4, "held beyond data, bare", verdict.Skipped, false},
	{5, "NVML, three processes", verdict.Held, false},
	{5, "nvidia-smi, three processes", verdict.Skipped, false},
	{5, "pynvml, three processes", verdict.Skipped, false},
	{5, "NVML in a PID namespace of its own", verdict.Held, false},
	{5, "functions nvidia-smi looks up for processes", verdict.Skipped, false},
	{6, "6 processes race for memory, half are killed", verdict.Held, true},
	{6, "start of 6 processes at once", verdict.Held, true},
	{7, "elementwise, 256 MiB", verdict.Held, true},
	{7, "20 µs kernels", verdict.Held, true},
	{7, "graph of 100 kernels", verdict.Held, true},
	{7, "GEMM 8192 fp16, queued", verdict.Skipped, false},
	{7, "GEMM 8192 fp16, each waited for", verdict.Skipped, false},
	{7, "transformer training step", verdict.Skipped, false},
	{8, "30 % and 70 %: elementwise, 256 MiB", verdict.Held, true},
	{8, "30 % and 70 %: 20 µs kernels", verdict.Held, true},
	{8, "30 % and 70 %: GEMM 8192 fp16, queued", verdict.Skipped, false},
	{9, "30 % alone with the switch at 0, then a rival", verdict.Held, true},
	{9, "30 % beside an idle neighbour, which then works", verdict.Held, true}, // skipped by a library that knows no neighbours
	{10, "driver API, unlimited", verdict.Held, true},
	{10, "driver API, 99 %", verdict.Held, true},
	{10, "driver API, waiting at 50 %", verdict.Noted, false},
	{10, "runtime API, unlimited", verdict.Skipped, false},
	{10, "runtime API, 99 %", verdict.Skipped, false},
	{10, "cuEventRecord and cuEventQuery", verdict.Noted, false},
	{11, "1 MiB allocated and freed", verdict.Held, true},
	{12, "transformer training step", verdict.Skipped, false},
	{12, "decode: 400 small kernels and a wait", verdict.Skipped, false},
	{13, "8 GiB: pieces of 2 MiB", verdict.Skipped, false},
	{13, "default pool at 8 GiB", verdict.Skipped, false},
	{13, "PyTorch filled at 8 GiB", verdict.Skipped, false},
	{13, "share of 30 % and 50 %", verdict.Skipped, false},
	{13, "cost of a launch", verdict.Skipped, false},
	{14, "decode, eager, batch 1: unlimited", verdict.Noted, false},
	{14, "decode, eager, batch 1: 99 %", verdict.Noted, false},
	{14, "decode, graph, batch 1: unlimited", verdict.Noted, false},
	{14, "decode, graph, batch 1: 99 %", verdict.Noted, false},
	{15, "decode alone at 10 to 90 %", verdict.Noted, false},
	{15, "decode, 50 % and 50 % at once", verdict.Noted, false},
	{15, "decode, 30 % and 70 % at once", verdict.Noted, false},
	{15, "decode, 10 % and 90 % at once", verdict.Noted, false},
	{15, "decode, two without the library", verdict.Noted, false},
}

func TestDryRunHasEveryRowAndHoldsWhatTheFakeCanShow(t *testing.T) {
	if testing.Short() {
		t.Skip("the dry run takes a minute")
	}
	buildParts(t)
	rows := dryRun(t)
	if len(rows) != len(dryRows) {
		t.Errorf("%d rows, want %d", len(rows), len(dryRows))
	}
	for i, want := range dryRows {
		if i >= len(rows) {
			break
		}
		got := rows[i]
		switch {
		case got.Experiment != want.experiment || got.Name != want.name:
			t.Errorf("row %d is %d %q, want %d %q", i, got.Experiment, got.Name, want.experiment, want.name)
		case got.Result == want.want || namespacesMissing(got) || neighboursMissing(got):
		case want.timed && late(got):
			t.Logf("%d %s: %s (%s, %s), on this machine", got.Experiment, got.Name, got.Result, got.Why, got.Measured)
		default:
			t.Errorf("%d %s: %s (%s, %s), want %s", got.Experiment, got.Name, got.Result, got.Why, got.Measured, want.want)
		}
	}
}

// late is whether a row was measured and missed only a bound of time or of a share.
func late(r verdict.Row) bool {
	race := strings.Contains(r.Name, "race for memory")
	return r.Result == verdict.Missed && r.Measured != "" && (!race || strings.HasPrefix(r.Why, "free only after") && !strings.Contains(r.Why, ";"))
}

// namespacesMissing is whether a row needs namespaces that this machine refuses.
func namespacesMissing(r verdict.Row) bool {
	return r.Result == verdict.Skipped && os.Geteuid() != 0 && (r.Name == "environment against file" || r.Experiment == 5)
}

// neighboursMissing is whether a row needs a library that knows neighbours.
func neighboursMissing(r verdict.Row) bool {
	return r.Result == verdict.Skipped && strings.Contains(r.Why, "neighbours")
}

// dryRun is a whole run of the command, as -json writes it.
func dryRun(t *testing.T) []verdict.Row {
	t.Helper()
	path := filepath.Join(t.TempDir(), "table.json")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	missed, err := suite(ctx, options{dir: t.TempDir(), json: path, fake: true, limit: 15 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		About about
		Rows  []verdict.Row
	}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if !out.About.Fake {
		t.Error("the run does not say that it is on a fake driver")
	}
	for _, r := range out.Rows {
		if r.Result == verdict.Missed {
			missed--
		}
	}
	if missed != 0 {
		t.Errorf("the run's own count of misses is off by %d", missed)
	}
	return out.Rows
}

// buildParts builds what the suite runs, and goes to the top of the source tree, where
// it finds them.
func buildParts(t *testing.T) {
	t.Helper()
	t.Chdir("../../..")
	for _, dir := range []string{"e2e/fakegpu", "hami-core", "e2e/laboratory/gpu/load"} {
		if out, err := exec.Command("make", "--no-print-directory", "-C", dir).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", dir, err, out)
		}
	}
}

func TestARunWithoutDriverOrPartsSaysWhatToDo(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, o := range map[string]options{
		"no parts":       {dir: ".", limit: time.Minute},
		"no fake driver": {dir: ".", limit: time.Minute, fake: true},
	} {
		if _, err := suite(t.Context(), o); err == nil || len(err.Error()) < 20 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := suite(t.Context(), options{numbers: "99"}); err == nil {
		t.Error("experiment 99 ran")
	}
}
