// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// member is a process of a daemon: itself, or a server of its.
type member struct {
	pid, parent int
	server      bool
}

// PID implements Control. The daemon writes its process id into its pipe directory, but
// containers can write there too. So the daemon is searched among all processes.
func (p Program) PID(d Daemon) int {
	all := p.listProcesses(d)
	for _, x := range all {
		// A server that has just been forked looks like the daemon.
		if !x.server && !slices.ContainsFunc(all, func(o member) bool { return o.pid == x.parent }) {
			return x.pid
		}
	}
	return 0
}

// Lives implements Control.
func (p Program) Lives(d Daemon, pid int) bool {
	x, ok := p.identifyProcess(d, pid)
	return ok && !x.server
}

// listProcesses lists those of a daemon, lowest first.
func (p Program) listProcesses(d Daemon) []member {
	procs, _ := procfs.AllProcs()
	slices.SortFunc(procs, func(a, b procfs.Proc) int { return a.PID - b.PID })
	var all []member
	for _, proc := range procs {
		if x, ok := p.identifyProcess(d, proc.PID); ok {
			all = append(all, x)
		}
	}
	return all
}

// identifyProcess tells a process of a daemon by what no container can have: its name, the
// namespace of process numbers of this process, and the daemon's /dev/shm as its
// own. The kernel keeps 15 bytes of a name, which server and daemon have in common.
func (p Program) identifyProcess(d Daemon, pid int) (member, bool) {
	proc, err := procfs.NewProc(pid)
	if pid <= 0 || err != nil {
		return member{}, false
	}
	parent, ok := parentOf(proc, filepath.Base(p.Path))
	if !ok {
		return member{}, false
	}
	dir := filepath.Join(procfs.DefaultMountPoint, strconv.Itoa(pid))
	ours, err := os.Readlink("/proc/self/ns/pid")
	theirs, err2 := os.Readlink(filepath.Join(dir, "ns", "pid"))
	if err != nil || err2 != nil || ours != theirs {
		return member{}, false
	}
	if want, err := os.Stat(d.Shm()); err != nil || !hasShm(pid, want) {
		return member{}, false
	}
	exe, _ := proc.Executable()
	return member{pid: pid, parent: parent, server: strings.HasSuffix(exe, "-server")}, true
}

// hasShm reports whether a directory is a process's /dev/shm.
func hasShm(pid int, dir os.FileInfo) bool {
	has, err := os.Stat(filepath.Join(procfs.DefaultMountPoint, strconv.Itoa(pid), "root", "dev", "shm"))
	return err == nil && os.SameFile(dir, has)
}

// HasUsers reports whether a container with the daemon's device is running: a process that
// has the daemon's /dev/shm as its own and is none of the daemon's.
func (p Program) HasUsers(d Daemon) (bool, error) {
	dir, err := os.Stat(d.Shm())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for containers with device %s: %w", d.Device, err)
	}
	procs, err := procfs.AllProcs()
	if err != nil {
		return false, fmt.Errorf("look for containers with device %s: %w", d.Device, err)
	}
	return slices.ContainsFunc(procs, func(proc procfs.Proc) bool {
		if !hasShm(proc.PID, dir) {
			return false
		}
		_, its := p.identifyProcess(d, proc.PID)
		return !its
	}), nil
}

// parentOf returns the parent of a process. It is false for a process of another name
// and for one that has ended.
func parentOf(proc procfs.Proc, name string) (int, bool) {
	// The name alone is little to read: most processes have another one.
	if comm, err := proc.Comm(); err != nil || comm != name[:min(len(name), 15)] {
		return 0, false
	}
	stat, err := proc.Stat()
	return stat.PPID, err == nil && stat.State != "Z" && stat.State != "X"
}

// Kill implements Control. A server whose daemon is gone would keep the device.
func (p Program) Kill(ctx context.Context, d Daemon, pid int) error {
	all := slices.DeleteFunc(p.listProcesses(d), func(x member) bool { return x.pid != pid && x.parent != pid })
	for _, x := range all {
		if err := p.killProcess(d, x.pid); err != nil {
			return fmt.Errorf("kill the MPS control daemon of device %s, process %d of it: %w", d.Device, x.pid, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	for slices.ContainsFunc(all, func(x member) bool { _, lives := p.identifyProcess(d, x.pid); return lives }) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the MPS control daemon of device %s was killed and does not end: %w", d.Device, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// killProcess ends one process of a daemon. The handle (a pidfd, since Linux 5.4) refers to this
// process even if it ends and its number is given to another one. So the process is opened
// first and identified then, and the signal cannot reach another process.
func (p Program) killProcess(d Daemon, pid int) error {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if _, ok := p.identifyProcess(d, pid); !ok {
		return nil
	}
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
