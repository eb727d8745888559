// SPDX-License-Identifier: Apache-2.0

package mpsnode

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

func (p *Preparer) daemon(id sharing.DeviceID) Daemon {
	return Daemon{Device: id, Dir: filepath.Join(p.cfg.Directories, string(id)), MultiUser: p.cfg.MultiUser, Partitioned: p.cfg.Partitions}
}

// directories makes where the daemon and its clients meet. They stay while the
// device is in the mode, since containers have them mounted.
func (p *Preparer) directories(d Daemon) error {
	for _, dir := range []struct {
		path string
		mode fs.FileMode
	}{
		{p.cfg.Directories, 0o755}, {d.Dir, 0o755}, {d.Pipe(), 0o755}, {d.Log(), 0o755},
		{d.Shm(), 0o777 | fs.ModeSticky}, // as /dev/shm
	} {
		if err := p.cfg.Files.MakeDir(dir.path, dir.mode); err != nil {
			return err
		}
	}
	return nil
}

// ensure makes a daemon run with its defaults. One that runs already is adopted if
// it answers: its clients keep working. died reports that one ran before and does
// no longer: its clients have lost the device, whatever becomes of the daemon.
func (p *Preparer) ensure(ctx context.Context, d Daemon, r device) (died bool, err error) {
	if err := p.directories(d); err != nil {
		return false, err
	}
	before, err := p.cfg.Files.Read(d.started())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	pid := p.cfg.Control.PID(d)
	if pid != 0 && string(before) == mark(d, pid) {
		return false, p.answers(ctx, d, r)
	}
	if pid != 0 && strings.HasPrefix(string(before), mark(Daemon{}, pid)) {
		if err := p.replace(ctx, d); err != nil {
			return false, err
		}
		pid = 0
		before, err = nil, fs.ErrNotExist // it did not die
	}
	died = pid == 0 && err == nil
	if pid == 0 {
		if err := p.cfg.Control.Start(ctx, d); err != nil {
			return died, fmt.Errorf("start the MPS control daemon of device %s: %w", d.Device, err)
		}
		pid = p.cfg.Control.PID(d)
	}
	return died, p.configure(ctx, d, r, pid)
}

// mark is the content of the file that says that a daemon has its defaults, and
// which options it was started with.
func mark(d Daemon, pid int) string {
	text := "pid " + strconv.Itoa(pid) + "\n"
	if d.MultiUser {
		text += "multi-user\n"
	}
	if d.Partitioned {
		text += "partitioned\n"
	}
	return text
}

// configured reports whether a daemon lives that was given its defaults.
func (p *Preparer) configured(d Daemon) bool {
	pid := p.cfg.Control.PID(d)
	if pid == 0 {
		return false
	}
	text, err := p.cfg.Files.Read(d.started())
	return err == nil && strings.HasPrefix(string(text), mark(Daemon{}, pid))
}

// replace ends a daemon that was started with other options than are set now. Its
// containers keep what they came with: it is not touched while there are any beside
// the one that is being prepared.
func (p *Preparer) replace(ctx context.Context, d Daemon) error {
	there, err := p.claims(d.Device)
	if err == nil && len(there) > 1 {
		err = fmt.Errorf("%d containers use it; it is replaced when they are gone", len(there)-1)
	}
	if err == nil {
		err = p.quit(ctx, d)
	}
	if err != nil {
		return fmt.Errorf("the MPS control daemon of device %s runs with other options than are set now: %w", d.Device, err)
	}
	return nil
}

// configure gives a daemon its defaults. They must be there before its first client,
// since a server keeps those it was started with.
func (p *Preparer) configure(ctx context.Context, d Daemon, r device, pid int) error {
	for _, command := range []string{
		// By ordinal: of the daemon's devices, of which there is one. The form with
		// a UUID is taken by the daemon and has no effect.
		fmt.Sprintf("set_default_device_pinned_mem_limit 0 %dM", r.MemoryMiB),
		fmt.Sprintf("set_default_active_thread_percentage %d", r.Percentage),
	} {
		if _, err := p.tell(ctx, d, command); err != nil {
			return err
		}
	}
	if err := p.answers(ctx, d, r); err != nil {
		return err
	}
	return p.cfg.Files.Write(d.started(), []byte(mark(d, pid)), 0o600)
}

// answers reports whether a daemon is the one that was given these defaults.
func (p *Preparer) answers(ctx context.Context, d Daemon, r device) error {
	text, err := p.tell(ctx, d, "get_default_active_thread_percentage")
	if err != nil {
		return err
	}
	got, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || got != float64(r.Percentage) {
		return fmt.Errorf("the MPS control daemon of device %s has the default thread percentage %q, want %d", d.Device, strings.TrimSpace(text), r.Percentage)
	}
	return nil
}

func (p *Preparer) tell(ctx context.Context, d Daemon, command string) (string, error) {
	text, err := p.cfg.Control.Tell(ctx, d, command)
	if err != nil {
		return "", fmt.Errorf("tell the MPS control daemon of device %s %q: %w", d.Device, command, err)
	}
	return text, nil
}

// clients are the processes that a daemon's servers serve.
func (p *Preparer) clients(ctx context.Context, d Daemon) ([]string, error) {
	servers, err := p.tell(ctx, d, "get_server_list")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, server := range numbers(servers) {
		list, err := p.tell(ctx, d, "get_client_list "+server)
		if err != nil {
			return nil, err
		}
		all = append(all, numbers(list)...)
	}
	return all, nil
}

// numbers are the lines of an answer that are process ids.
func numbers(text string) []string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if _, err := strconv.ParseUint(line, 10, 32); err == nil {
			out = append(out, line)
		}
	}
	return out
}

// quit ends a daemon that nobody uses and waits until it is gone.
func (p *Preparer) quit(ctx context.Context, d Daemon) error {
	if p.cfg.Control.PID(d) == 0 {
		return nil
	}
	clients, err := p.clients(ctx, d)
	if err != nil {
		return err
	}
	if len(clients) > 0 {
		return fmt.Errorf("device %s still has MPS clients, processes %s: it leaves the mode when they have ended", d.Device, strings.Join(clients, ", "))
	}
	if _, err := p.tell(ctx, d, "quit"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, quitPatience)
	defer cancel()
	for p.cfg.Control.PID(d) != 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the MPS control daemon of device %s does not end: %w", d.Device, ctx.Err())
		case <-time.After(quitPoll):
		}
	}
	return nil
}

// How long a daemon without clients may take to end, and how often that is looked
// at.
const (
	quitPatience = 10 * time.Second
	quitPoll     = 20 * time.Millisecond
)
