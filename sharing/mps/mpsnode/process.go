// SPDX-License-Identifier: Apache-2.0

package mpsnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// member is a process of a daemon: itself, or a server of its.
type member struct {
	pid, parent int
	server      bool
}

// PID implements Control. The daemon writes its process id into its pipe directory, but
// containers can write there too. So the daemon is searched among all processes.
func (p Program) PID(d Daemon) int {
	all := p.processes(d)
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
	x, ok := p.identify(d, pid)
	return ok && !x.server
}

// processes lists those of a daemon, lowest first.
func (p Program) processes(d Daemon) []member {
	entries, _ := os.ReadDir("/proc")
	var all []member
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if x, ok := p.identify(d, pid); ok {
				all = append(all, x)
			}
		}
	}
	slices.SortFunc(all, func(a, b member) int { return a.pid - b.pid })
	return all
}

// identify tells a process of a daemon by what no container can have: its name, the
// namespace of process numbers of this process, and the daemon's /dev/shm as its
// own. The kernel keeps 15 bytes of a name, which server and daemon have in common.
func (p Program) identify(d Daemon, pid int) (member, bool) {
	if pid <= 0 {
		return member{}, false
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return member{}, false
	}
	parent, ok := parentOf(string(stat), filepath.Base(p.Path))
	if !ok {
		return member{}, false
	}
	ours, err := os.Readlink("/proc/self/ns/pid")
	theirs, err2 := os.Readlink(filepath.Join(dir, "ns", "pid"))
	if err != nil || err2 != nil || ours != theirs {
		return member{}, false
	}
	want, err := os.Stat(d.Shm())
	has, err2 := os.Stat(filepath.Join(dir, "root", "dev", "shm"))
	if err != nil || err2 != nil || !os.SameFile(want, has) {
		return member{}, false
	}
	exe, _ := os.Readlink(filepath.Join(dir, "exe"))
	return member{pid: pid, parent: parent, server: strings.HasSuffix(exe, "-server")}, true
}

// parentOf reads the parent from the text of /proc/<pid>/stat (proc_pid_stat(5)),
// where the name is in parentheses before state and parent. It is false for a
// process of another name and for one that has ended.
func parentOf(stat, name string) (int, bool) {
	begin, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if begin < 0 || end < begin || stat[begin+1:end] != name[:min(len(name), 15)] {
		return 0, false
	}
	words := strings.Fields(stat[end+1:])
	if len(words) < 2 || words[0] == "Z" || words[0] == "X" {
		return 0, false
	}
	parent, err := strconv.Atoi(words[1])
	return parent, err == nil
}

// How long processes that are killed may take to end, and how often that is checked.
const (
	killPatience = 10 * time.Second
	killPoll     = 20 * time.Millisecond
)

// Kill implements Control. A server whose daemon is gone would keep the device.
func (p Program) Kill(ctx context.Context, d Daemon, pid int) error {
	all := slices.DeleteFunc(p.processes(d), func(x member) bool { return x.pid != pid && x.parent != pid })
	for _, x := range all {
		if err := p.kill(d, x.pid); err != nil {
			return fmt.Errorf("kill the MPS control daemon of device %s, process %d of it: %w", d.Device, x.pid, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	for slices.ContainsFunc(all, func(x member) bool { _, lives := p.identify(d, x.pid); return lives }) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the MPS control daemon of device %s was killed and does not end: %w", d.Device, ctx.Err())
		case <-time.After(killPoll):
		}
	}
	return nil
}

// kill ends one process. It takes a handle of the process before it checks what it is,
// so that no other process gets the signal if this one ends meanwhile.
func (p Program) kill(d Daemon, pid int) error {
	held, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = held.Release() }()
	if _, ok := p.identify(d, pid); !ok {
		return nil
	}
	if err := held.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
