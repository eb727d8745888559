// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// TracePod is a pod of a trace: when it comes, how long it runs and what it asks for.
type TracePod struct {
	Name string
	// Arrival and Duration are in seconds, the first since the begin of the trace.
	Arrival, Duration int64
	// Devices is how many, Memory in MiB and Cores in percent of each, 0 for the default.
	Devices, Memory, Cores int64
	// CPU in thousandths and RAM in MiB are what it requests besides.
	CPU, RAM int64
	// Queue, Priority (a class), Policy and Mode are empty for the default.
	Queue, Priority, Policy, Mode string
}

// traceColumns are the columns of a trace; the first three must be there.
func traceColumns() []string {
	return []string{"arrival", "duration", "devices", "name", "memory_mib", "cores", "cpu_milli", "ram_mib", "queue", "priority_class", "policy", "mode"}
}

const requiredColumns = 3

// mostMistakes bounds how many mistakes of a trace are told.
const mostMistakes = 20

// ReadTrace reads a trace: CSV with a line of column names. It is strict: an unknown column, a
// number that is none and every other mistake is told with its line.
func ReadTrace(r io.Reader) ([]TracePod, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord, in.TrimLeadingSpace = -1, true
	head, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("read the trace: its first line, the names of the columns: %w", err)
	}
	t := traceReader{columns: map[string]int{}}
	t.readHeader(head)
	if len(t.mistakes) > 0 {
		return nil, t.joinMistakes()
	}
	var out []TracePod
	names := map[string]int{}
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the trace: %w", err)
		}
		t.line, _ = in.FieldPos(0)
		p := t.readPod(row, len(head), len(out))
		if before, there := names[p.Name]; there {
			t.addMistake("name: %q is that of line %d too", p.Name, before)
		}
		names[p.Name] = t.line
		out = append(out, p)
	}
	if len(out) == 0 && len(t.mistakes) == 0 {
		t.addMistake("there is no pod")
	}
	if len(t.mistakes) > 0 {
		return nil, t.joinMistakes()
	}
	slices.SortStableFunc(out, func(a, b TracePod) int { return int(min(max(a.Arrival-b.Arrival, -1), 1)) })
	return out, nil
}

type traceReader struct {
	columns  map[string]int
	line     int
	mistakes []error
	more     int
}

func (t *traceReader) addMistake(format string, args ...any) {
	if len(t.mistakes) == mostMistakes {
		t.more++
		return
	}
	t.mistakes = append(t.mistakes, fmt.Errorf("line %d: %s", max(t.line, 1), fmt.Sprintf(format, args...)))
}

func (t *traceReader) joinMistakes() error {
	if t.more > 0 {
		t.mistakes = append(t.mistakes, fmt.Errorf("and %d mistakes more", t.more))
	}
	return fmt.Errorf("read the trace: %w", errors.Join(t.mistakes...))
}

func (t *traceReader) readHeader(names []string) {
	known := traceColumns()
	for i, name := range names {
		name = strings.TrimSpace(name)
		if _, twice := t.columns[name]; twice {
			t.addMistake("column %q is there twice", name)
		}
		if !slices.Contains(known, name) {
			t.addMistake("unknown column %q: want some of %s", name, strings.Join(known, ", "))
		}
		t.columns[name] = i
	}
	for _, name := range known[:requiredColumns] {
		if _, there := t.columns[name]; !there {
			t.addMistake("column %q is missing", name)
		}
	}
}

// maxTraceNumber bounds numbers, so that sums of them fit.
const maxTraceNumber = 1 << 40

func (t *traceReader) readPod(row []string, columns, before int) TracePod {
	if len(row) != columns {
		t.addMistake("%d fields, want %d", len(row), columns)
		return TracePod{Name: fmt.Sprintf("line-%d", t.line)}
	}
	p := TracePod{
		Arrival: t.numberField(row, "arrival", 0, maxTraceNumber), Duration: t.numberField(row, "duration", 1, maxTraceNumber),
		Devices: t.numberField(row, "devices", 0, 64), Memory: t.numberField(row, "memory_mib", 0, 1<<30), Cores: t.numberField(row, "cores", 0, 100),
		CPU: t.numberField(row, "cpu_milli", 0, 1<<30), RAM: t.numberField(row, "ram_mib", 0, 1<<30),
		Name: t.textField(row, "name"), Queue: t.textField(row, "queue"), Priority: t.textField(row, "priority_class"),
		Policy: t.textField(row, "policy"), Mode: t.textField(row, "mode"),
	}
	if p.Devices == 0 && (p.Memory > 0 || p.Cores > 0) {
		t.addMistake("memory_mib and cores are of each device, and devices is 0")
	}
	if p.Name == "" {
		p.Name = fmt.Sprintf("pod-%06d", before+1)
	}
	return p
}

func (t *traceReader) textField(row []string, column string) string {
	i, there := t.columns[column]
	if !there {
		return ""
	}
	return strings.TrimSpace(row[i])
}

// numberField reads a whole number; an empty field of a column that may be missing is 0.
func (t *traceReader) numberField(row []string, column string, least, most int64) int64 {
	text := t.textField(row, column)
	if text == "" && !slices.Contains(traceColumns()[:requiredColumns], column) {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		t.addMistake("%s: %q: want a whole number from %d to %d", column, text, least, most)
		return least
	}
	return n
}
