// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is how many clock ticks of /proc make a second: on Linux 100 on every architecture that
// Go knows.
const ticks = 100

// processor returns the processor time that a process has taken so far.
func processor(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return parseStat(string(text))
}

// parseStat reads the times of user and system from the text of /proc/PID/stat. The name of the
// program, in parentheses, may contain anything.
func parseStat(text string) (time.Duration, error) {
	_, rest, found := cutLast(text, ") ")
	fields := strings.Fields(rest)
	const user, system = 11, 12 // counted from the state, the third field of the whole
	if !found || len(fields) <= system {
		return 0, fmt.Errorf("read processor times: no such line in a /proc: %q", text)
	}
	sum := 0
	for _, f := range []string{fields[user], fields[system]} {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, fmt.Errorf("read processor times: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// peakMiB returns the most memory that a process has had resident since forgetPeak, in MiB.
func peakMiB(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: /proc does not tell the peak", pid)
}

// forgetPeak has the peak of a process counted anew from now on.
func forgetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("count the peak memory of process %d anew: %w", pid, err)
	}
	return nil
}

// own returns the processor time that this program has taken so far.
func own() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it cannot fail for this process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
