// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"deviceshare/e2e/laboratory/gpu/verdict"
	"deviceshare/e2e/report"
)

// about is what a reader of the table needs to know of the run.
type about struct {
	Fake    bool    `json:"fake"`
	Date    string  `json:"date"`
	Commit  string  `json:"commit"`
	GPU     string  `json:"gpu"`
	Driver  string  `json:"driver"`
	UUID    string  `json:"uuid"`
	Total   int64   `json:"total_bytes"`
	CPUs    int     `json:"cpus"`
	Tenants string  `json:"tenants"`
	Clocks  string  `json:"clocks"`
	Seconds float64 `json:"seconds"`
}

func (b *bench) describe(ctx context.Context) about {
	a := about{
		Fake: b.fake, Date: time.Now().UTC().Format(time.DateOnly), Commit: commit, UUID: b.machine.UUID, CPUs: runtime.NumCPU(),
		Tenants: "a mount namespace each, limits from the file",
	}
	if b.noNamespaces != nil {
		a.Tenants = "limits from the environment, because: " + b.noNamespaces.Error()
	}
	if b.noNeighbours == nil {
		a.Tenants += ", neighbours' files in experiments 8, 9 and 15"
	}
	if answer, err := b.watcher.Ask(ctx, "nvml"); err == nil {
		a.GPU, a.Driver = strings.ReplaceAll(answer.Text("name"), "_", " "), answer.Text("driver")
		a.Total, _ = answer.Int("total")
	} else {
		a.GPU, a.Driver = "unknown: "+err.Error(), "unknown"
	}
	return a
}

// commit is the source's, set when `make gpu-build` links this program.
var commit = "unknown, not built by make gpu-build"

// watched notes a clock of the card that was seen under load.
func (b *bench) watched(mhz float64) {
	if mhz > 0 {
		b.mu.Lock()
		b.mhz = append(b.mhz, mhz)
		b.mu.Unlock()
	}
}

func (b *bench) clocksSeen(ctx context.Context) string {
	b.mu.Lock()
	seen := slices.Clone(b.mhz)
	b.mu.Unlock()
	now := "unknown"
	if a, err := b.watcher.Ask(ctx, "watch 1 0"); err == nil && a.Text("mhz") != "0" {
		now = a.Text("mhz") + " MHz"
	}
	if len(seen) == 0 {
		return "SM " + now + " at the end"
	}
	return fmt.Sprintf("SM %.0f to %.0f MHz under load, median %.0f; %s at the end", slices.Min(seen), slices.Max(seen), verdict.Median(seen), now)
}

func (a about) lines() []string {
	lines := []string{
		fmt.Sprintf("GPU: %s, %d MiB, driver %s", a.GPU, a.Total/mib, a.Driver),
		fmt.Sprintf("commit: %s, %s, %d CPUs", a.Commit, a.Date, a.CPUs),
		"tenants: " + a.Tenants,
	}
	if a.Fake {
		lines = append([]string{"FAKE DRIVER: the logic is exercised; no figure below says anything about a card"}, lines...)
	}
	if a.Clocks != "" {
		lines = append(lines, "clocks: "+a.Clocks, fmt.Sprintf("took: %.0f s", a.Seconds))
	}
	return lines
}

// markdown is the table, so that it can go into a document as it is.
func markdown(a about, rows []verdict.Row) string {
	var text strings.Builder
	text.WriteString("\n")
	for _, line := range a.lines() {
		text.WriteString(line + "  \n")
	}
	measured := "measured"
	if a.Fake {
		measured = "measured (fake)"
	}
	fmt.Fprintf(&text, "\n| # | experiment | %s | pass criterion | result |\n|---|---|---|---|---|\n", measured)
	count := map[verdict.Result]int{}
	for _, r := range rows {
		count[r.Result]++
		fmt.Fprintf(&text, "| %d | %s | %s | %s | %s%s |\n", r.Experiment, cell(r.Name), cell(r.Measured), cell(r.Criterion), r.Result, cell(because(r)))
	}
	fmt.Fprintf(&text, "\n%d held, %d missed, %d skipped, %d noted, %d undecided\n",
		count[verdict.Held], count[verdict.Missed], count[verdict.Skipped], count[verdict.Noted], count[verdict.Undecided])
	return text.String()
}

// cell is text that stays in its column.
func cell(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
}

func writeJSON(path string, a about, rows []verdict.Row) error {
	data, err := json.MarshalIndent(struct {
		Version int           `json:"version"`
		About   about         `json:"about"`
		Rows    []verdict.Row `json:"rows"`
	}{1, a, rows}, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// firstUUID is the UUID of the first device in what cudaclient prints.
func firstUUID(text string) string { return report.Field(text, "info index=0", "uuid") }
