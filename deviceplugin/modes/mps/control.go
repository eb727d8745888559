// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"path/filepath"
	"time"

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

// Shm is the directory that the daemon and its clients have as /dev/shm.
func (d Daemon) Shm() string { return filepath.Join(d.Dir, "shm") }

// startedFile is the file that says that the daemon has its defaults.
func (d Daemon) startedFile() string { return filepath.Join(d.Dir, "started") }

// Control starts control daemons and talks to them. Implementations are safe for
// concurrent use by different daemons. Containers can write in the pipe directory, so
// implementations trust nothing there and never wait on it without a timeout.
type Control interface {
	// Start starts a daemon that sees its device alone and outlives this process.
	// It returns when the daemon answers commands. The directories are there.
	Start(ctx context.Context, d Daemon) error
	// PID returns the process of a running daemon; 0 if there is none.
	PID(d Daemon) int
	// Lives reports whether this process is the daemon and is still running.
	Lives(d Daemon, pid int) bool
	// Ending says how the process of a daemon ended, for people; false where that is not
	// known.
	Ending(ctx context.Context, d Daemon, pid int) (how string, known bool)
	// Kill ends a daemon and its servers, and returns when they are gone.
	Kill(ctx context.Context, d Daemon, pid int) error
	// Tell sends one command and returns the answer of the daemon. An error means that
	// the daemon does not answer, unless it is ErrNotAsked.
	Tell(ctx context.Context, d Daemon, command string) (string, error)
}

// Timeouts of what the control program and its daemons do.
const (
	startTimeout = 10 * time.Second // from the start of a daemon to its first answer
	tellTimeout  = 10 * time.Second // one command
	talkTimeout  = 30 * time.Second // a series of commands whose length depends on the answers
	quitTimeout  = 10 * time.Second // the end of a daemon that was told to quit
	killTimeout  = 10 * time.Second // the end of processes that were killed
	// pollInterval is the time between two looks at whether it is over.
	pollInterval = 20 * time.Millisecond
)

// ErrNotAsked says that a command could not be sent: the control program cannot be run,
// for example while the driver is updated. It says nothing about the daemon.
var ErrNotAsked = errors.New("the control program cannot be run")
