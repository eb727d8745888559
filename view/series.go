// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Series is how much of a cluster is promised over time, by one policy.
type Series struct {
	Policy string   `json:"policy"`
	Points []Moment `json:"points"`
	// Memory in bytes and Cores in percent of a device are what the cluster has.
	Memory int64 `json:"memory"`
	Cores  int   `json:"cores"`
	// Placed and NeverPlaced count the pods of the trace; Waited is how long those that were placed
	// waited, in seconds in all.
	Placed      int   `json:"placed"`
	NeverPlaced int   `json:"neverPlaced"`
	Waited      int64 `json:"waitedSeconds"`
}

// Moment is the cluster from one moment to the next.
type Moment struct {
	Second  int64 `json:"second"`
	Running int   `json:"running"`
	Waiting int   `json:"waiting"`
	Memory  int64 `json:"memoryPromised"`
	Cores   int   `json:"coresPromised"`
}

// seriesColumns are the columns of WriteSeries.
func seriesColumns() []string {
	return []string{"policy", "second", "running", "waiting", "memory_promised_mib", "memory_mib", "compute_promised_percent", "compute_percent"}
}

// WriteSeries writes the series as CSV with a line of names: one line for each moment at which
// something was different. MiB are whole, and percents are of one device.
func WriteSeries(w io.Writer, all []Series) error {
	out := csv.NewWriter(w)
	if err := out.Write(seriesColumns()); err != nil {
		return fmt.Errorf("write the names of the columns: %w", err)
	}
	for i := range all {
		s := &all[i]
		for _, m := range s.Points {
			row := []string{s.Policy}
			for _, n := range []int64{m.Second, int64(m.Running), int64(m.Waiting), m.Memory >> 20, s.Memory >> 20, int64(m.Cores), int64(s.Cores)} {
				row = append(row, strconv.FormatInt(n, 10))
			}
			if err := out.Write(row); err != nil {
				return fmt.Errorf("write policy %s: %w", s.Policy, err)
			}
		}
	}
	out.Flush()
	return out.Error()
}

// chartWidth is how many columns a chart has.
const chartWidth = 60

// SeriesText draws the series for people: a chart of the memory promised for each policy, and a
// table to compare them.
func SeriesText(all []Series, p Paint) string {
	var b strings.Builder
	end := int64(0)
	for i := range all {
		if n := len(all[i].Points); n > 0 {
			end = max(end, all[i].Points[n-1].Second)
		}
	}
	fmt.Fprintf(&b, "Memory promised, of all there is (full block: all of it), from second 0 to %d:\n", end)
	names := table{}
	for i := range all {
		names.addRow(all[i].Policy, "|"+drawChart(&all[i], end)+"|")
	}
	names.writeRows(&b, Paint{})
	b.WriteByte('\n')
	t := table{}
	t.addRow("POLICY", "PLACED", "NEVER PLACED", "MEAN MEMORY PROMISED", "MEAN COMPUTE PROMISED", "MEAN WAIT")
	for i := range all {
		s := &all[i]
		memory, cores := s.meanPromised(end)
		wait := "-"
		if s.Placed > 0 {
			wait = fmt.Sprintf("%.1fs", float64(s.Waited)/float64(s.Placed))
		}
		t.addRow(s.Policy, itoa(s.Placed), itoa(s.NeverPlaced), fmt.Sprintf("%.1f%%", memory), fmt.Sprintf("%.1f%%", cores), wait)
	}
	t.writeRows(&b, p)
	return b.String()
}

// meanPromised are the means over time until end, in percent of what there is.
func (s *Series) meanPromised(end int64) (memory, cores float64) {
	s.visitMoments(end, func(m Moment, seconds int64) {
		memory, cores = memory+float64(m.Memory)*float64(seconds), cores+float64(m.Cores)*float64(seconds)
	})
	return percentOf(memory, float64(s.Memory)*float64(end)), percentOf(cores, float64(s.Cores)*float64(end))
}

func percentOf(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * part / whole
}

func (s *Series) visitMoments(end int64, visit func(Moment, int64)) {
	for i, m := range s.Points {
		until := end
		if i+1 < len(s.Points) {
			until = s.Points[i+1].Second
		}
		visit(m, until-m.Second)
	}
}

// drawChart draws the mean memory promised of each of its columns.
func drawChart(s *Series, end int64) string {
	blocks := []rune(" ▁▂▃▄▅▆▇█")
	sums := make([]float64, chartWidth)
	width := float64(end) / chartWidth
	if width == 0 || s.Memory == 0 {
		return strings.Repeat(" ", chartWidth)
	}
	s.visitMoments(end, func(m Moment, seconds int64) {
		from, to := float64(m.Second)/width, float64(m.Second+seconds)/width
		for column := int(from); column < chartWidth && float64(column) < to; column++ {
			covered := min(to, float64(column+1)) - max(from, float64(column))
			sums[column] += covered * float64(m.Memory)
		}
	})
	var b strings.Builder
	for _, sum := range sums {
		level := int(sum/float64(s.Memory)*float64(len(blocks)-1) + 0.5)
		if level == 0 && sum > 0 {
			level = 1
		}
		b.WriteRune(blocks[min(level, len(blocks)-1)])
	}
	return b.String()
}
