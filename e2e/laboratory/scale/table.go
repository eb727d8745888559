// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Row is a line of the table: one workload on one size of cluster.
type Row struct {
	Nodes int
	Workload
	// Device and CPUOnly are what was measured of the two kinds.
	Device, CPUOnly Figures
	// Ratio is the median over pairs of turns: how many pods per second with devices, for one
	// without.
	Ratio float64
	// Low and High are the least and the largest ratio of a pair.
	Low, High float64
	// Load is the part of all processor time that this program took.
	Load float64
	// PeakMiB is the most memory the scheduler had.
	PeakMiB int
}

// Figures are medians over the turns of one kind.
type Figures struct {
	PodsPerSecond    float64
	SchedulerSeconds float64
	Hottest          []Hot
}

// rowOf sums up the turns of a workload; there are as many of one kind as of the other.
func rowOf(nodes int, w Workload, device, cpu []turn) Row {
	r := Row{Nodes: nodes, Workload: w, Device: figuresOf(w.Pods, device), CPUOnly: figuresOf(w.Pods, cpu)}
	var ratios []float64
	var load, all time.Duration
	for i := range device {
		ratios = append(ratios, cpu[i].took.Seconds()/device[i].took.Seconds())
		for _, t := range []turn{device[i], cpu[i]} {
			load += t.load
			all += t.load + t.scheduler + t.rest
		}
	}
	r.Ratio, r.Low, r.High = median(ratios), slices.Min(ratios), slices.Max(ratios)
	if all > 0 {
		r.Load = load.Seconds() / all.Seconds()
	}
	return r
}

func figuresOf(pods int, turns []turn) Figures {
	var rates, seconds []float64
	for _, t := range turns {
		rates = append(rates, float64(pods)/t.took.Seconds())
		seconds = append(seconds, t.scheduler.Seconds())
	}
	return Figures{PodsPerSecond: median(rates), SchedulerSeconds: median(seconds)}
}

// median of an even number is the mean of the two in the middle; 0 of none.
func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Head is the head of the table.
const Head = `| nodes | pods | pods/s device | pods/s CPU-only | ratio (least, largest) | scheduler CPU s, device and CPU-only | peak RSS MiB | load's part of CPU |
|---|---|---|---|---|---|---|---|`

// String is the row in Markdown.
func (r Row) String() string {
	return fmt.Sprintf("| %d x %d | %d %s | %.1f | %.1f | %.2f (%.2f, %.2f) | %.1f, %.1f | %d | %.0f %% |",
		r.Nodes, devicesPerNode, r.Pods, r.Name, r.Device.PodsPerSecond, r.CPUOnly.PodsPerSecond, r.Ratio, r.Low, r.High,
		r.Device.SchedulerSeconds, r.CPUOnly.SchedulerSeconds, r.PeakMiB, 100*r.Load)
}

// HotHead is the head of the table of functions.
const HotHead = `| nodes | pods | hottest, device | hottest, CPU-only |
|---|---|---|---|`

// Hot is the row of the hottest functions in Markdown.
func (r Row) Hot() string {
	return fmt.Sprintf("| %d | %s | %s | %s |", r.Nodes, r.Name, list(r.Device.Hottest), list(r.CPUOnly.Hottest))
}

func list(hot []Hot) string {
	var out []string
	for _, h := range hot {
		out = append(out, fmt.Sprintf("`%s` %.0f %%", h.Name, 100*h.Part))
	}
	return strings.Join(out, ", ")
}
