// SPDX-License-Identifier: Apache-2.0

package mpsnode

import (
	"context"
	"errors"
	"path/filepath"

	"deviceshare/sharing"
)

// Daemon is the control daemon of one device, known by its directories.
type Daemon struct {
	Device sharing.DeviceID
	Dir    string // of pipe, log and shm
	// MultiUser lets clients of all users share one server.
	MultiUser bool
	// Partitioned daemons serve clients with a static partition only.
	Partitioned bool
}

// Pipe, Log and Shm are the directories of the daemon.
func (d Daemon) Pipe() string { return filepath.Join(d.Dir, "pipe") }

// Log is the directory of its logs.
func (d Daemon) Log() string { return filepath.Join(d.Dir, "log") }

// Shm is what it and its clients have as /dev/shm.
func (d Daemon) Shm() string { return filepath.Join(d.Dir, "shm") }

// started is the file that says that the daemon has its defaults.
func (d Daemon) started() string { return filepath.Join(d.Dir, "started") }

// Control starts control daemons and talks to them. Implementations are safe for
// concurrent use by different daemons. Containers can write what lies in the pipe
// directory, so nothing there is believed, and no call waits on it for ever.
type Control interface {
	// Start starts a daemon that sees its device alone and outlives this process.
	// It returns when the daemon answers commands. The directories are there.
	Start(ctx context.Context, d Daemon) error
	// PID looks for the process of a daemon that lives, 0 when there is none.
	PID(d Daemon) int
	// Lives reports whether a process is the daemon and has not ended.
	Lives(d Daemon, pid int) bool
	// Kill ends a daemon and its servers, and returns when they are gone.
	Kill(ctx context.Context, d Daemon, pid int) error
	// Tell sends one command and returns what the daemon answers. An error is a
	// daemon that does not answer, unless it is ErrNotAsked.
	Tell(ctx context.Context, d Daemon, command string) (string, error)
}

// ErrNotAsked is a question that could not be put to a daemon: the control program
// cannot be run, as while the driver is updated. It says nothing about the daemon.
var ErrNotAsked = errors.New("the control program cannot be run")
