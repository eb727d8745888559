// SPDX-License-Identifier: Apache-2.0

// Command gpu runs libvgpu.so and the device plugin's discovery on a machine
// with an NVIDIA GPU and prints one table. It changes nothing of the card: no
// mode, no clock, no MIG. It needs root, because the limits file has one fixed
// place, and the library and the CUDA client built beforehand:
//
//	make gpu
//
// What the machine lacks (PyTorch, nvidia-smi) is skipped and said so.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

// outcome is one row of the table.
type outcome struct {
	name, criterion, measured string
	err                       error
	skipped                   string
	took                      time.Duration
}

// experiment measures one thing. It returns what was measured, or errSkip with
// what the machine lacks.
type experiment struct {
	name, criterion string
	run             func(*bench) (string, error)
}

// skip is the error of an experiment that cannot run here.
type skip string

func (s skip) Error() string { return string(s) }

func main() {
	dir := flag.String("dir", ".sandbox/gpu", "directory with libvgpu.so, cudaclient and deviceshare-device-plugin")
	flag.Parse()
	b, err := newBench(*dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(2)
	}
	fmt.Printf("device: %s\n\n", b.device)
	failed := 0
	var rows []outcome
	for _, e := range experiments() {
		fmt.Printf("running %s …\n", e.name)
		row := b.measure(e)
		if row.err != nil {
			failed++
		}
		rows = append(rows, row)
	}
	b.clean()
	print(rows)
	if failed > 0 {
		os.Exit(1)
	}
}

// measure runs one experiment on a clean slate.
func (b *bench) measure(e experiment) outcome {
	row := outcome{name: e.name, criterion: e.criterion}
	begin := time.Now()
	b.clean()
	row.measured, row.err = e.run(b)
	row.took = time.Since(begin)
	var why skip
	if errors.As(row.err, &why) {
		row.err, row.skipped = nil, string(why)
	}
	return row
}

// print writes the table as Markdown, so that it can go into a document.
func print(rows []outcome) {
	fmt.Printf("\n| experiment | pass criterion | measured | result | s |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		result := "pass"
		switch {
		case r.err != nil:
			result = "FAIL: " + r.err.Error()
		case r.skipped != "":
			result = "skipped: " + r.skipped
		}
		fmt.Printf("| %s | %s | %s | %s | %.1f |\n", r.name, r.criterion, r.measured, result, r.took.Seconds())
	}
}
