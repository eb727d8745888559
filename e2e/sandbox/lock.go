// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lock is held by the process that owns a state directory.
type lock struct{ file *os.File }

// takeLock takes the lock of a state directory or says who holds it and how to stop them.
func takeLock(l layout) (*lock, error) {
	f, err := os.OpenFile(l.lockFile(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the sandbox: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid := holder(l)
		_ = f.Close()
		return nil, fmt.Errorf("a sandbox already runs with the state directory %s: process %s; "+
			"stop it with `make sandbox-down` or `kill %s`", l.state, pid, pid)
	}
	if err := f.Truncate(0); err != nil {
		return nil, fmt.Errorf("lock the sandbox: %w", err)
	}
	if _, err := fmt.Fprintf(f, "%d\n", os.Getpid()); err != nil {
		return nil, fmt.Errorf("lock the sandbox: %w", err)
	}
	return &lock{file: f}, nil
}

// release gives the lock back. The file stays: removing it would race with somebody who waits for
// it.
func (k *lock) release() {
	_ = k.file.Truncate(0)
	_ = k.file.Close()
}

// holder is the process id written by the owner of the lock, or "unknown".
func holder(l layout) string {
	text, err := os.ReadFile(l.lockFile())
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return pid
	}
	return "unknown"
}

// Idle returns nil when no sandbox runs with these options' state directory, and otherwise says who
// runs it and how to stop them.
func Idle(opts Options) error {
	o, err := opts.Defaults()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.State), 0o755); err != nil {
		return fmt.Errorf("lock the sandbox: %w", err)
	}
	k, err := takeLock(layout{repo: o.Repo, state: o.State})
	if err != nil {
		return err
	}
	k.release()
	return nil
}

// stopTimeout bounds how long the owner of a sandbox may take to stop it before it is killed.
const stopTimeout = time.Minute

// Down stops a sandbox that another process owns, and cleans up what a crashed one left.
func Down(ctx context.Context, opts Options) error {
	o, err := opts.Defaults()
	if err != nil {
		return err
	}
	l := layout{repo: o.Repo, state: o.State}
	if err := os.MkdirAll(filepath.Dir(o.State), 0o755); err != nil {
		return fmt.Errorf("lock the sandbox: %w", err)
	}
	k, err := takeLock(l)
	if err != nil {
		if k, err = stopHolder(ctx, o, l); err != nil {
			return err
		}
	}
	defer k.release()
	if err := clean(l); err != nil {
		return err
	}
	o.Progress("stopped; nothing is left but the logs in " + l.in("logs"))
	return nil
}

// stopHolder asks the owner of the lock to end, kills it when it does not, and takes the lock.
func stopHolder(ctx context.Context, o Options, l layout) (*lock, error) {
	pid, err := strconv.Atoi(holder(l))
	if err != nil {
		return nil, fmt.Errorf("stop the sandbox: its lock %s does not name a process", l.lockFile())
	}
	o.Progress(fmt.Sprintf("stopping process %d", pid))
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return nil, fmt.Errorf("stop process %d: %w", pid, err)
	}
	deadline := time.Now().Add(stopTimeout)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if k, err := takeLock(l); err == nil {
			return k, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
		if time.Now().After(deadline) {
			o.Progress(fmt.Sprintf("process %d does not end; killing it", pid))
			_ = syscall.Kill(pid, syscall.SIGKILL)
			deadline = time.Now().Add(stopTimeout)
		}
	}
}
