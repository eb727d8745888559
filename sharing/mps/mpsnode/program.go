// SPDX-License-Identifier: Apache-2.0

package mpsnode

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
	// Launcher is put before the command that starts a daemon, for hosts where it
	// would otherwise end with this process's container; usually empty.
	Launcher []string
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

// namespaceScript is a shell script that runs a command in a mount namespace of its own, in
// the root directory $0, with the daemon's directory $1 at the same path there and its
// shm as /dev/shm, which its clients have too.
const namespaceScript = `root="${0%/}" dir="$1"; shift
if [ -n "$root" ]; then mkdir -p "$root$dir" && mount --rbind "$dir" "$root$dir" || exit 125; fi
mount --bind "$dir/shm" "$root/dev/shm" || exit 125
exec chroot "$root/" "$@"`

// inNamespace is the command that runs args in a mount namespace like the daemon's.
func (p Program) inNamespace(d Daemon, args ...string) []string {
	root := p.Root
	if root == "" {
		root = "/"
	}
	return append([]string{"unshare", "--mount", "sh", "-c", namespaceScript, root, d.Dir}, args...)
}

// Start implements Control.
func (p Program) Start(ctx context.Context, d Daemon) error {
	// A container can block the daemon with a pipe that it made before.
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	args := append(append([]string{}, p.Launcher...), p.inNamespace(d, p.Path, "-d")...)
	if d.MultiUser {
		args = append(args, "-multiuser-server")
	}
	if d.Partitioned {
		args = append(args, "-S")
	}
	// A file, not a pipe: the daemon may keep it open.
	out, err := os.OpenFile(filepath.Join(d.Log(), "start.log"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(environmentOf(d), "CUDA_VISIBLE_DEVICES="+string(d.Device))
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s -d: %w: %s", p.Path, err, endOf(out.Name()))
	}
	return p.await(ctx, d)
}

// endOf returns the last bytes of a file with the output of a command.
func endOf(path string) string {
	const most = 500
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil {
		_, _ = file.Seek(max(0, info.Size()-most), io.SeekStart)
	}
	text, _ := io.ReadAll(io.LimitReader(file, most))
	return strings.TrimSpace(string(text))
}

// await waits until a daemon that was started answers.
func (p Program) await(ctx context.Context, d Daemon) error {
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
	args := []string{p.Path}
	if !p.ownRoot() {
		args = p.inNamespace(d, p.Path)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = environmentOf(d)
	cmd.Stdin = strings.NewReader(command + "\n")
	cmd.WaitDelay = time.Second // for what it left that has the output open
	var got answer
	cmd.Stdout, cmd.Stderr = &got, &got
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(string(got.text[:min(len(got.text), 500)]))
		if ctx.Err() == nil && !hasRun(err, text) {
			return "", fmt.Errorf("%w: %w: %s", ErrNotAsked, err, text)
		}
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return string(got.text), nil
}

// hasRun distinguishes a control program that ran and failed from one that could not be run:
// then the process did not begin, or what runs before it failed. The shell and
// chroot(1) say that with 125, 126 or 127, unshare(1) with its name.
func hasRun(err error, text string) bool {
	var ended *exec.ExitError
	return errors.As(err, &ended) && (ended.ExitCode() < 125 || ended.ExitCode() > 127) && !strings.HasPrefix(text, "unshare: ")
}

// partitionsSince is the version of the control program from which it knows static
// partitions: CUDA 13.1.
const partitionsSince = 13010

// KnowsPartitions asks the program for its version.
func (p Program) KnowsPartitions(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	args := []string{p.Path, "-v"}
	if !p.ownRoot() {
		args = append([]string{"chroot", p.Root}, args...)
	}
	text, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
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
