// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// BenchmarkLargeCluster runs the program, as users have it, on a capture of 5,000 nodes with 8
// devices each and 80,000 pods. Beside the time it reports that of the processors and the largest
// memory of one run.
func BenchmarkLargeCluster(b *testing.B) {
	program := filepath.Join(b.TempDir(), "kubectl-deviceshare")
	build := exec.CommandContext(b.Context(), "go", "build", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build the program: %v\n%s", err, out)
	}
	path := file(b, large(5000, 80000))
	for _, line := range []string{"status", "devices", "pods -A", "queues", "why pod-000100 -n team"} {
		b.Run(strings.Fields(line)[0], func(b *testing.B) {
			var processor, memory float64
			for b.Loop() {
				c := exec.CommandContext(b.Context(), program, append(strings.Fields(line), "--from", path)...)
				if err := c.Start(); err != nil {
					b.Fatal(err)
				}
				memory = max(memory, largest(c.Process.Pid))
				if err := c.Wait(); err != nil {
					b.Fatalf("%s: %v", line, err)
				}
				processor += c.ProcessState.UserTime().Seconds() + c.ProcessState.SystemTime().Seconds()
			}
			b.ReportMetric(processor/float64(b.N), "processor-s/op")
			b.ReportMetric(memory, "MiB-peak")
		})
	}
}

// largest follows a process to its end and returns the most memory it had, in MiB. What the kernel
// says of it afterwards counts what the benchmark itself had when it started the process.
func largest(pid int) float64 {
	most := 0.0
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, peak, alive := strings.Cut(string(text), "VmHWM:")
		if err != nil || !alive {
			return most
		}
		var kib float64
		if _, err := fmt.Sscan(peak, &kib); err == nil {
			most = max(most, kib/1024)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
