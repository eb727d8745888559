// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Program is NVIDIA's control program on this host. It implements Control.
type Program struct {
	// Path is nvidia-cuda-mps-control, as seen below Root.
	Path string
	// Root is where the driver's installation is, "/" or "" when it is this
	// process's own. The program runs with it as its root directory, so that it
	// finds the server and the driver's libraries.
	Root string
	// Keeper starts daemons in a process that outlives this one's container. Without one
	// they are children of this process, and end with its container if it runs in one.
	Keeper Keeper
}

// Keeper is the process of this node that daemons are children of.
type Keeper interface {
	// Start has the control program bring a daemon up, as Launch does.
	Start(ctx context.Context, d Daemon) error
	// Ending says how the process of a daemon ended; false where that is not known.
	Ending(ctx context.Context, d Daemon, pid int) (how string, known bool)
}

// FindProgram finds the control program: by its path, or by its name in the usual
// places below the root of the driver, else on PATH.
func FindProgram(name, driverRoot string) (Program, error) {
	if strings.Contains(name, "/") {
		if _, err := os.Stat(name); err != nil {
			return Program{}, fmt.Errorf("find the MPS control program: %w", err)
		}
		return Program{Path: name}, nil
	}
	for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/bin"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(filepath.Join(driverRoot, path)); err == nil && info.Mode()&0o111 != 0 {
			return Program{Path: path, Root: driverRoot}, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return Program{}, fmt.Errorf("find the MPS control program: %w", err)
	}
	return Program{Path: path}, nil
}

// ownRoot reports whether the program runs in this process's root directory.
func (p Program) ownRoot() bool { return p.Root == "" || p.Root == "/" }

// Start implements Control.
func (p Program) Start(ctx context.Context, d Daemon) error {
	// A container can block the daemon with a pipe that it made before.
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	start := p.Launch
	if p.Keeper != nil {
		start = p.Keeper.Start
	}
	if err := start(ctx, d); err != nil {
		return err
	}
	return p.awaitAnswer(ctx, d)
}

// Ending implements Control.
func (p Program) Ending(ctx context.Context, d Daemon, pid int) (how string, known bool) {
	if p.Keeper == nil {
		return "", false
	}
	return p.Keeper.Ending(ctx, d, pid)
}

// Launch starts a daemon whose parent is this process, or the nearest one above it that takes
// orphans in. It returns when the control program has put the daemon into the background.
func (p Program) Launch(ctx context.Context, d Daemon) error {
	// A file, not a pipe: the daemon may keep it open.
	out, err := os.OpenFile(filepath.Join(d.Log(), "start.log"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	args := []string{"-d"}
	if d.MultiUser {
		args = append(args, "-multiuser-server")
	}
	if d.Partitioned {
		args = append(args, "-S")
	}
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Env = append(environmentOf(d), "CUDA_VISIBLE_DEVICES="+string(d.Device))
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = p.startInside(d, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s -d: %w: %s", p.Path, err, endOf(out))
	}
	return nil
}

func endOf(file *os.File) string {
	const most = 500
	begin := int64(0)
	if info, err := file.Stat(); err == nil {
		begin = max(0, info.Size()-most)
	}
	text, _ := io.ReadAll(io.NewSectionReader(file, begin, most))
	return strings.TrimSpace(string(text))
}

func (p Program) awaitAnswer(ctx context.Context, d Daemon) error {
	for {
		_, err := p.Tell(ctx, d, "get_server_list")
		if err == nil && p.PID(d) != 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("it does not answer: %w", ctx.Err()), err)
		case <-time.After(pollInterval):
		}
	}
}

// environmentOf is the environment that names the daemon's directories.
func environmentOf(d Daemon) []string {
	return append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+d.Pipe(), "CUDA_MPS_LOG_DIRECTORY="+d.Log())
}

// maxAnswer bounds an answer, in bytes. Real ones are shorter: a line for each client
// or partition.
const maxAnswer = 64 << 10

// answer keeps the output of a command up to maxAnswer. A container can impersonate the
// daemon and print without end.
type answer struct{ text []byte }

func (a *answer) Write(b []byte) (int, error) {
	if len(a.text)+len(b) > maxAnswer {
		return 0, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	a.text = append(a.text, b...)
	return len(b), nil
}

// Tell implements Control. The program says on its standard output, with exit code
// 1, that there is no daemon.
func (p Program) Tell(ctx context.Context, d Daemon, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Path)
	cmd.Env = environmentOf(d)
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(command + "\n")
	cmd.WaitDelay = time.Second // for what it left that has the output open
	var got answer
	cmd.Stdout, cmd.Stderr = &got, &got
	err := p.startCommand(d, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		text := strings.TrimSpace(string(got.text[:min(len(got.text), 500)]))
		if ctx.Err() == nil && !hasRun(err) {
			return "", fmt.Errorf("%w: %w: %s", ErrNotAsked, err, text)
		}
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return string(got.text), nil
}

func (p Program) startCommand(d Daemon, cmd *exec.Cmd) error {
	if p.ownRoot() {
		return cmd.Start()
	}
	return p.startInside(d, cmd)
}

// hasRun distinguishes a control program that ran and failed from one that could not be run:
// then no process began, or a script in its place failed to start it, which shells say with
// 125, 126 or 127.
func hasRun(err error) bool {
	var ended *exec.ExitError
	return errors.As(err, &ended) && (ended.ExitCode() < 125 || ended.ExitCode() > 127)
}

// partitionsSince is the version of the control program from which it knows static
// partitions: CUDA 13.1.
const partitionsSince = 13010

// KnowsPartitions asks the program for its version.
func (p Program) KnowsPartitions(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Path, "-v")
	if !p.ownRoot() {
		cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: p.Root}, "/"
	}
	text, err := cmd.CombinedOutput()
	if err != nil {
		return false, fmt.Errorf("ask %s for its version: %w: %s", p.Path, err, strings.TrimSpace(string(text)))
	}
	for _, word := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(word); err == nil {
			return n >= partitionsSince, nil
		}
	}
	return false, nil // as old as to print no number
}
