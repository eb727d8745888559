// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// mark is what the file says that is written once a daemon has its defaults: which
// process it is, the options it was started with, and the defaults. No container can
// write it.
type mark struct {
	pid int
	options
	memoryMiB  int64
	percentage int
}

// options are what a daemon can be given at its start only.
type options struct {
	multiUser, partitioned bool
	// bounded: the directories that containers can write had their limits.
	bounded bool
}

// markOf is the mark of a daemon that is as it is wanted now.
func markOf(d Daemon, r deviceRecord, pid int) mark {
	return mark{
		pid: pid, options: options{multiUser: d.MultiUser, partitioned: d.Partitioned, bounded: true},
		memoryMiB: r.MemoryMiB, percentage: r.Percentage,
	}
}

// String is the content of the file.
func (m mark) String() string {
	text := "pid " + strconv.Itoa(m.pid) + "\n"
	for _, o := range []struct {
		set  bool
		line string
	}{{m.multiUser, "multi-user\n"}, {m.partitioned, "partitioned\n"}, {m.bounded, "bounded\n"}} {
		if o.set {
			text += o.line
		}
	}
	return text + fmt.Sprintf("memory %d\npercentage %d\n", m.memoryMiB, m.percentage)
}

// readMark reads the file. What it does not know it passes over: a mark without a
// process is one of a daemon that is gone.
func readMark(text string) mark {
	var m mark
	for line := range strings.Lines(text) {
		word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case word == "multi-user":
			m.multiUser = true
		case word == "partitioned":
			m.partitioned = true
		case word == "bounded":
			m.bounded = true
		case err != nil || n <= 0:
		case word == "pid":
			m.pid = int(n)
		case word == "memory":
			m.memoryMiB = n
		case word == "percentage":
			m.percentage = int(n)
		}
	}
	return m
}

// loadMark reads a daemon's mark; false when there is none.
func (p *Preparer) loadMark(d Daemon) (mark, bool, error) {
	text, err := p.cfg.Files.Read(d.startedFile())
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, false, nil
	}
	if err != nil {
		return mark{}, false, err
	}
	return readMark(string(text)), true, nil
}

// findPID is the process of a daemon that lives, 0 when there is none. The one of
// its mark is looked at first.
func (p *Preparer) findPID(d Daemon, m mark) int {
	if m.pid != 0 && p.cfg.Control.Lives(d, m.pid) {
		return m.pid
	}
	return p.cfg.Control.PID(d)
}

// daemonPID is the process of a daemon as its mark tells it, 0 when there is none.
func (p *Preparer) daemonPID(d Daemon) (pid int, err error) {
	m, _, err := p.loadMark(d)
	if err != nil {
		return 0, err
	}
	return p.findPID(d, m), nil
}
