// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"deviceshare/deviceplugin/modes/mps"
)

// maxEnds is how many daemons are remembered that have ended.
const maxEnds = 64

// daemons are those that a server started. It is safe for concurrent use.
type daemons struct {
	mu       sync.Mutex
	isEnding bool
	running  []Process
	ended    []End
}

func (d *daemons) copyState() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return State{IsEnding: d.isEnding, Running: append([]Process{}, d.running...), Ended: append([]End{}, d.ended...)}
}

func (d *daemons) refuseStarts() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isEnding = true
}

// addRunning takes a daemon in; false if it is known.
func (d *daemons) addRunning(p Process) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.running, p) {
		return false
	}
	d.running = append(d.running, p)
	return true
}

// recordEnd takes in that a process has ended; false if it is no daemon's.
func (d *daemons) recordEnd(pid int, how string) (End, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.running, func(p Process) bool { return p.PID == pid })
	if i < 0 {
		return End{}, false
	}
	e := End{Process: d.running[i], How: how}
	d.running = slices.Delete(d.running, i, i+1)
	d.ended = append(d.ended, e)
	d.ended = d.ended[max(0, len(d.ended)-maxEnds):]
	return e, true
}

// reapProcesses takes in all processes that have ended: daemons, and servers that they left. It
// does nothing while a daemon is started.
func (s *Server) reapProcesses() {
	if !s.launching.TryLock() {
		return
	}
	defer s.launching.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return // there are no children, or none that has ended
		}
		if e, is := s.daemons.recordEnd(pid, howEnded(status)); is {
			s.cfg.Log.Info("daemon ended", "device", e.Device, "process", e.PID, "how", e.How)
		}
	}
}

func howEnded(status syscall.WaitStatus) string {
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		return "it was killed, or the node or the keeper's pod was out of memory"
	case status.Signaled():
		return fmt.Sprintf("it was ended by signal %s", unix.SignalName(status.Signal()))
	}
	return fmt.Sprintf("it exited with code %d", status.ExitStatus())
}

// endIdle ends every daemon whose device no container has had for a while, and reports whether
// no daemon is left.
func (s *Server) endIdle() (done bool) {
	running := s.daemons.copyState().Running
	for _, p := range running {
		if err := s.endIfIdle(p); err != nil {
			s.cfg.Log.Error("daemon not ended", "device", p.Device, "process", p.PID, "err", err)
		}
	}
	return len(running) == 0
}

// endIfIdle ends a daemon whose device no container has had for a while.
func (s *Server) endIfIdle(p Process) error {
	// Processes are known by the program's name. The program itself may be gone by now.
	program := mps.Program{Path: filepath.Base(s.cfg.Control)}
	daemon := (&Daemon{Device: p.Device}).asMPSDaemon(s.cfg.Directories)
	if !program.Lives(daemon, p.PID) {
		s.daemons.recordEnd(p.PID, "it ended")
		return nil
	}
	hasUsers, err := program.HasUsers(daemon)
	if err != nil || hasUsers {
		delete(s.idle, p)
		return err
	}
	since, was := s.idle[p]
	if !was {
		s.idle[p] = time.Now()
		return nil
	}
	if time.Since(since) < s.cfg.Idle {
		return nil
	}
	return program.Kill(context.Background(), daemon, p.PID)
}
