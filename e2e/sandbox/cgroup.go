// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// cgroupHierarchies returns the root of every cgroup hierarchy of this machine: one on cgroup v2,
// one per controller on v1, and both kinds on a hybrid.
func cgroupHierarchies() ([]string, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return nil, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	var out []string
	for _, m := range mounts {
		if strings.HasPrefix(m.MountPoint, "/sys/fs/cgroup") && strings.HasPrefix(m.FSType, "cgroup") {
			out = append(out, m.MountPoint)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// makeCgroup creates the cgroup below which the kubelet keeps its pods, in every hierarchy.
func makeCgroup(l layout) error {
	roots, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
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

// copyCpuset gives a new v1 cpuset its parent's CPUs and memory nodes; it starts out with none and
// would hold no process.
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

// removeCgroup removes the sandbox's cgroup and those below it. It is an error when a process is in
// one of them.
func removeCgroup(l layout) error {
	roots, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range roots {
		errs = append(errs, removeEmpty(root+l.cgroup()))
	}
	return errors.Join(errs...)
}

// removeEmpty removes a cgroup after those below it. The files in a cgroup cannot be removed and go
// with it.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove a cgroup: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := removeEmpty(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a cgroup: %w", err)
	}
	return nil
}
