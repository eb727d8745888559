// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// proc is what is known of one running process.
type proc struct {
	pid  int
	exe  string // "" for a kernel thread
	args []string
	env  string // NUL-separated
}

// readProcs lists the processes of this machine. Processes that end meanwhile are left out.
func readProcs() ([]proc, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []proc
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(cmdline) == 0 {
			continue
		}
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		out = append(out, proc{
			pid: pid, exe: strings.TrimSuffix(exe, " (deleted)"), env: string(env),
			args: strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00"),
		})
	}
	return out, nil
}

// startedBy reports whether the process, or one it descends from, was started by the sandbox with this marker.
func (p proc) startedBy(marker string) bool {
	for kv := range strings.SplitSeq(p.env, "\x00") {
		if kv == marker {
			return true
		}
	}
	return false
}

// isKubelet reports whether the process is a kubelet, a sandbox's or any other.
func (p proc) isKubelet() bool {
	name := filepath.Base(p.args[0])
	if name == "kubelet" || filepath.Base(p.exe) == "kubelet" {
		return true
	}
	return name == "controlplane" && len(p.args) > 1 && p.args[1] == "kubelet"
}

// foreignKubelet returns a kubelet on this machine that does not belong to the sandbox.
func foreignKubelet(procs []proc, marker string) (proc, bool) {
	for _, p := range procs {
		if p.isKubelet() && !p.startedBy(marker) {
			return p, true
		}
	}
	return proc{}, false
}

// killMarked kills every process that the sandbox with this marker started, shims included, and waits for their end.
func killMarked(marker string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		procs, err := readProcs()
		if err != nil {
			return err
		}
		var left []int
		for _, p := range procs {
			if p.startedBy(marker) && !zombie(p.pid) {
				left = append(left, p.pid)
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill leftover processes: %v do not end", left)
		}
		time.Sleep(pollEvery)
	}
}

// zombie reports that a process has ended and only waits for its parent to notice.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, ok := strings.Cut(string(stat), ") ")
	return ok && strings.HasPrefix(after, "Z")
}
