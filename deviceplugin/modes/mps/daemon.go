// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"deviceshare/sharing"
)

func (p *Preparer) daemonFor(id sharing.DeviceID) Daemon {
	return Daemon{Device: id, Dir: filepath.Join(p.cfg.Directories, string(id)), MultiUser: p.cfg.MultiUser, Partitioned: p.cfg.Partitions}
}

// makeDirectories makes the directories that the daemon shares with its clients. They stay
// as long as the device is in the mode, because containers have them mounted.
func (p *Preparer) makeDirectories(d Daemon) error {
	for _, dir := range []struct {
		path string
		mode fs.FileMode
	}{
		{p.cfg.Directories, 0o755}, {d.Dir, 0o755}, {d.Pipe(), 0o755}, {d.Log(), 0o755},
		{d.Shm(), shmMode},
	} {
		if err := p.cfg.Files.MakeDir(dir.path, dir.mode); err != nil {
			return err
		}
	}
	return nil
}

// ensureDaemon starts the daemon with its defaults if it does not run. A daemon that runs and
// answers is adopted, so its clients keep working. died reports that a daemon ran before
// and ended: its clients have lost the device, even if a new daemon is started.
func (p *Preparer) ensureDaemon(ctx context.Context, d Daemon, r deviceRecord) (died bool, err error) {
	if err := p.makeDirectories(d); err != nil {
		return false, err
	}
	before, there, err := p.loadMark(d)
	if err != nil {
		return false, err
	}
	pid := p.findPID(d, before)
	want := markOf(d, r, pid)
	if pid != 0 && before.pid == pid && before.options != want.options {
		if err := p.stopOutdated(ctx, d); err != nil {
			return false, err
		}
		pid, there = 0, false // it did not die
	}
	if died = pid == 0 && there; died {
		if how, known := p.cfg.Control.Ending(ctx, d, before.pid); known {
			p.endings.Store(d.Device, how)
		}
	}
	if err := p.limitDirectories(d); err != nil {
		return died, err
	}
	if pid == 0 {
		if pid, err = p.startDaemon(ctx, d); err != nil {
			return died, err
		}
	} else if before == want {
		if same, err := p.hasDefaults(ctx, d, r); err != nil || same {
			return false, err
		}
	}
	return died, p.setDefaults(ctx, d, r, pid)
}

// startDaemon starts a daemon. None may be running.
func (p *Preparer) startDaemon(ctx context.Context, d Daemon) (pid int, err error) {
	// First of all: the new daemon may give the same names to other partitions.
	if err := p.forgetPartitions(d.Device); err != nil {
		return 0, err
	}
	if err := p.emptyPipe(d); err != nil {
		return 0, err
	}
	if err := p.cfg.Control.Start(ctx, d); err != nil {
		return 0, fmt.Errorf("start the MPS control daemon of device %s: %w", d.Device, err)
	}
	if pid = p.cfg.Control.PID(d); pid == 0 {
		return 0, fmt.Errorf("the MPS control daemon of device %s was started and is gone again", d.Device)
	}
	return pid, nil
}

// isConfigured reports whether a daemon runs and has its defaults.
func (p *Preparer) isConfigured(d Daemon) bool {
	m, _, err := p.loadMark(d)
	return err == nil && m.pid != 0 && p.cfg.Control.Lives(d, m.pid)
}

// stopOutdated ends a daemon that was started with other options than those configured now.
// It does nothing while other containers than the one being prepared use the daemon:
// they keep the options they started with.
func (p *Preparer) stopOutdated(ctx context.Context, d Daemon) error {
	there, err := p.claimsOnDevice(d.Device)
	if err == nil && len(there) > 1 {
		err = fmt.Errorf("%d containers use it; it is replaced when they are gone", len(there)-1)
	}
	if err == nil {
		err = p.quitDaemon(ctx, d)
	}
	if err != nil {
		return fmt.Errorf("the MPS control daemon of device %s runs with other options than are set now: %w", d.Device, err)
	}
	return nil
}

// setDefaults gives a daemon its defaults. They must be there before its first client,
// since a server keeps those it was started with.
func (p *Preparer) setDefaults(ctx context.Context, d Daemon, r deviceRecord, pid int) error {
	for _, command := range []string{
		// By ordinal: of the daemon's devices, of which there is one. The form with
		// a UUID is taken by the daemon and has no effect.
		fmt.Sprintf("set_default_device_pinned_mem_limit 0 %dM", r.MemoryMiB),
		fmt.Sprintf("set_default_active_thread_percentage %d", r.Percentage),
	} {
		if _, err := p.sendCommand(ctx, d, command); err != nil {
			return err
		}
	}
	same, err := p.hasDefaults(ctx, d, r)
	if err == nil && !same {
		err = fmt.Errorf("the MPS control daemon of device %s does not take the default thread percentage %d", d.Device, r.Percentage)
	}
	if err != nil {
		return err
	}
	return p.cfg.Files.Write(d.startedFile(), []byte(markOf(d, r, pid).String()), 0o600)
}

// hasDefaults asks a daemon for its defaults. Only the percentage can be compared:
// it shows memory in whole GiB.
func (p *Preparer) hasDefaults(ctx context.Context, d Daemon, r deviceRecord) (bool, error) {
	text, err := p.sendCommand(ctx, d, "get_default_active_thread_percentage")
	if err != nil {
		return false, err
	}
	got, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return err == nil && got == float64(r.Percentage), nil
}

// errSilent says that the daemon does not answer, or not in time.
var errSilent = errors.New("it does not answer")

func (p *Preparer) sendCommand(ctx context.Context, d Daemon, command string) (string, error) {
	text, err := p.cfg.Control.Tell(ctx, d, command)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotAsked) {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	if err != nil {
		return "", fmt.Errorf("tell the MPS control daemon of device %s %q: %w", d.Device, command, err)
	}
	return text, nil
}

// runCommands runs a series of commands with a common timeout. A daemon that takes longer
// counts as one that does not answer.
func runCommands(ctx context.Context, questions func(ctx context.Context) error) error {
	inner, cancel := context.WithTimeout(ctx, talkTimeout)
	defer cancel()
	err := questions(inner)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	return err
}

// listClients returns the processes that the daemon's servers serve.
func (p *Preparer) listClients(ctx context.Context, d Daemon) (all []string, err error) {
	return all, runCommands(ctx, func(ctx context.Context) error {
		servers, err := p.sendCommand(ctx, d, "get_server_list")
		if err != nil {
			return err
		}
		for _, server := range pidLines(servers) {
			list, err := p.sendCommand(ctx, d, "get_client_list "+server)
			if err != nil {
				return err
			}
			all = append(all, pidLines(list)...)
		}
		return nil
	})
}

// pidLines returns the lines of an answer that are process ids.
func pidLines(text string) []string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if _, err := strconv.ParseUint(line, 10, 32); err == nil {
			out = append(out, line)
		}
	}
	return out
}

// quitDaemon ends a daemon that nobody uses and waits until it has ended. A daemon that does
// not answer is killed: no container uses it.
func (p *Preparer) quitDaemon(ctx context.Context, d Daemon) error {
	pid, err := p.daemonPID(d)
	if err != nil || pid == 0 {
		return err
	}
	clients, err := p.listClients(ctx, d)
	if err == nil && len(clients) > 0 {
		return fmt.Errorf("device %s still has MPS clients, processes %s: it leaves the mode when they have ended", d.Device, strings.Join(clients, ", "))
	}
	if err == nil {
		_, err = p.sendCommand(ctx, d, "quit")
	}
	if errors.Is(err, errSilent) {
		return p.cfg.Control.Kill(ctx, d, pid)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, quitTimeout)
	defer cancel()
	for p.cfg.Control.Lives(d, pid) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the MPS control daemon of device %s does not end: %w", d.Device, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
	return nil
}
