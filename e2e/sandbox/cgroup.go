// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupRoot is where cgroups are mounted.
const cgroupRoot = "/sys/fs/cgroup"

// cgroupHierarchies returns the root of every cgroup hierarchy of this machine: one on cgroup v2, one per
// controller on v1, and both kinds on a hybrid.
func cgroupHierarchies(mounts []mount) []string {
	var out []string
	for _, m := range below(mounts, cgroupRoot) {
		if m.fstype == "cgroup" || m.fstype == "cgroup2" {
			out = append(out, m.point)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// makeCgroup creates the cgroup below which the kubelet keeps its pods, in every hierarchy.
func makeCgroup(l layout) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for _, root := range cgroupHierarchies(mounts) {
		if err := delegate(root); err != nil {
			return err
		}
		dir := root + l.cgroup()
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create cgroup: %w", err)
		}
		if err := copyCpuset(root, dir); err != nil {
			return err
		}
		if err := delegate(dir); err != nil {
			return err
		}
	}
	return nil
}

// delegate lets the children of a cgroup v2 use all its controllers; on v1 there is nothing to do.
func delegate(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cgroup controllers: %w", err)
	}
	for _, c := range strings.Fields(string(have)) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644)
		if err != nil {
			return fmt.Errorf("hand cgroup controller %s of %s to its children: %w "+
				"(inside a container the processes of the root cgroup must first be moved to a child of it)", c, dir, err)
		}
	}
	return nil
}

// copyCpuset gives a new v1 cpuset its parent's CPUs and memory nodes; it starts out with none and would hold no process.
func copyCpuset(parent, dir string) error {
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(parent, f))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the root of cgroup v2
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", f, err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), text, 0o644); err != nil {
			return fmt.Errorf("set %s: %w", f, err)
		}
	}
	return nil
}

// removeCgroup kills every process below the sandbox's cgroup and removes it.
func removeCgroup(l layout) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		left := 0
		for _, root := range cgroupHierarchies(mounts) {
			left += clearCgroup(root + l.cgroup())
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %d cgroups stay occupied", l.cgroup(), left)
		}
		time.Sleep(pollEvery)
	}
}

// clearCgroup kills the processes of a cgroup tree, removes what is empty, and returns how many cgroups are left.
func clearCgroup(dir string) int {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // a cgroup that vanishes during the walk is what we want
	})
	for _, d := range dirs {
		for _, pid := range cgroupProcs(d) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	left := 0
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := os.Remove(dirs[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			left++
		}
	}
	return left
}

// cgroupProcs lists the processes of one cgroup.
func cgroupProcs(dir string) []int {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var out []int
	for _, f := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out
}
