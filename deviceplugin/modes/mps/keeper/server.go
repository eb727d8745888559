// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/mps"
)

// Config is what a Server works with. All fields but Idle are needed.
type Config struct {
	Socket string
	// Directories is the parent of all daemons' directories.
	Directories string
	// Control and Root lead to the control program, see mps.FindProgram. It is looked for
	// whenever a daemon is started: the driver may come later than this process.
	Control, Root string
	Log           *slog.Logger
	// Idle is for how long no container may be seen with a device before its daemon is ended
	// by a server that ends; 10 s. A container that is just being started has no process yet.
	Idle time.Duration
}

// Server is a keeper. In its process nobody else may start other processes.
type Server struct {
	cfg Config
	// launching is held for reading while a daemon is started and for writing while ended
	// processes are collected: the control program must not be collected under whoever
	// waits for it.
	launching sync.RWMutex
	daemons   daemons
	// idle is since when no container is seen that has a daemon's device. Only superviseDaemons
	// uses it.
	idle map[Process]time.Time
}

// NewServer returns a server that has not started.
func NewServer(cfg Config) *Server {
	if cfg.Idle == 0 {
		cfg.Idle = 10 * time.Second
	}
	return &Server{cfg: cfg, idle: map[Process]time.Time{}}
}

// lookEvery is the time between two looks at ended processes, beside those after a signal, and
// between two looks at containers.
const lookEvery = time.Second

// Run serves until ctx ends and no daemon is left whose device a container has. Another keeper
// on this node is waited for.
func (s *Server) Run(ctx context.Context) error {
	s.cfg.Log.Info("waiting for the socket", "socket", s.cfg.Socket)
	listener, err := host.ListenPrivate(ctx, s.cfg.Socket)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("serve device plugins: %w", err)
	}
	// The control program leaves its daemon behind as an orphan.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return errors.Join(fmt.Errorf("take orphans in: %w", err), listener.Close())
	}
	var serving sync.WaitGroup
	serving.Go(func() { s.acceptConnections(listener) })
	s.cfg.Log.Info("serving", "socket", s.cfg.Socket, "directories", s.cfg.Directories)
	s.superviseDaemons(ctx)
	err = listener.Close()
	serving.Wait()
	return err
}

// superviseDaemons collects what ends, until ctx ends and no daemon is left.
func (s *Server) superviseDaemons(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	stop := ctx.Done()
	for {
		select {
		case <-stop:
			stop = nil
			s.daemons.refuseStarts()
			s.cfg.Log.Info("ending when no container has a device in mode mps", "daemons", s.daemons.copyState().Running)
		case <-ended:
		case <-tick.C:
		}
		s.reapProcesses()
		if ctx.Err() != nil && s.endIdle() {
			return
		}
	}
}

func (s *Server) acceptConnections(listener net.Listener) {
	var answering sync.WaitGroup
	defer answering.Wait()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.cfg.Log.Error("a device plugin cannot be served", "err", err)
			time.Sleep(lookEvery) // out of descriptors, for example
			continue
		}
		answering.Go(func() { s.serveConnection(conn) })
	}
}

func (s *Server) serveConnection(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(patience)) // what cannot be set does not help
	text, err := bufio.NewReader(io.LimitReader(conn, maxRequest+1)).ReadBytes('\n')
	if err != nil {
		return // nothing was asked
	}
	a := s.answerRequest(text)
	_ = conn.SetWriteDeadline(time.Now().Add(patience))
	_, _ = conn.Write(a.Encode()) // nobody waits for it any more
}

func (s *Server) answerRequest(text []byte) Answer {
	r, err := ReadRequest(text)
	if err == nil && r.Start != nil {
		err = s.startDaemon(r.Start)
	}
	if err != nil {
		s.cfg.Log.Error("request refused", "err", err)
		why := err.Error()
		return Answer{Version: Version, Refused: why[:min(len(why), 1000)]}
	}
	state := s.daemons.copyState()
	state.Directories = s.cfg.Directories
	return Answer{Version: Version, State: &state}
}

// startTimeout bounds one run of the control program.
const startTimeout = 10 * time.Second

// startDaemon has the control program bring a daemon up. Whoever asked for it may be gone by then.
func (s *Server) startDaemon(d *Daemon) error {
	if want := filepath.Join(s.cfg.Directories, string(d.Device)); d.Directory != want {
		return fmt.Errorf("the directory of device %s is %s here, not %s: --mps-root differs", d.Device, want, d.Directory)
	}
	program, err := mps.FindProgram(s.cfg.Control, s.cfg.Root)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s.launching.RLock()
	defer s.launching.RUnlock()
	if s.daemons.copyState().IsEnding {
		return errors.New("it is ending")
	}
	daemon := d.asMPSDaemon(s.cfg.Directories)
	err = program.Launch(ctx, daemon)
	// Also after a failure: the control program may have come that far.
	if pid := program.PID(daemon); pid != 0 && s.daemons.addRunning(Process{Device: d.Device, PID: pid}) {
		s.cfg.Log.Info("daemon started", "device", d.Device, "process", pid)
	}
	return err
}

func (d *Daemon) asMPSDaemon(directories string) mps.Daemon {
	return mps.Daemon{
		Device: d.Device, Dir: filepath.Join(directories, string(d.Device)), MultiUser: d.MultiUser, Partitioned: d.Partitioned,
	}
}
