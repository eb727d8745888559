// SPDX-License-Identifier: Apache-2.0

// Package prometheus runs the real Prometheus and promtool for the tests: those of Debian's
// package, which is unpacked and not installed, so that nothing of the machine is changed and no
// daemon starts.
package prometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Tools are the paths of the programs.
type Tools struct{ Server, Promtool string }

// Install returns the programs of PATH, else those of Debian's package below .sandbox of the
// repository, where it unpacks them the first time. Several processes may install at once.
func Install(ctx context.Context, repo string) (Tools, error) {
	var found Tools
	var err, missing error
	if found.Server, err = exec.LookPath("prometheus"); err == nil {
		if found.Promtool, missing = exec.LookPath("promtool"); missing == nil {
			return found, nil
		}
	}
	dir, err := filepath.Abs(filepath.Join(repo, ".sandbox", "prometheus"))
	if err != nil {
		return Tools{}, fmt.Errorf("find Prometheus: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Tools{}, fmt.Errorf("make the directory of Prometheus: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return Tools{}, fmt.Errorf("install Prometheus: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return Tools{}, fmt.Errorf("install Prometheus: lock %s: %w", lock.Name(), err)
	}
	bin := filepath.Join(dir, "root", "usr", "bin")
	found = Tools{Server: filepath.Join(bin, "prometheus"), Promtool: filepath.Join(bin, "promtool")}
	if _, err := os.Stat(found.Promtool); err == nil {
		return found, nil
	}
	return found, unpack(ctx, dir)
}

// unpack fetches Debian's package and unpacks it into the directory "root".
func unpack(ctx context.Context, dir string) error {
	missing := errors.New("prometheus and promtool are missing: install them (on Debian: apt-get install prometheus)")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return missing
	}
	const script = `set -e
rm -rf new root prometheus_*.deb
apt-get -q download prometheus || { apt-get -q update; apt-get -q download prometheus; }
dpkg-deb -x prometheus_*.deb new
rm prometheus_*.deb
mv new root`
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: unpack Debian's package: %w\n%s", missing, err, out)
	}
	return nil
}

// Check runs promtool in a directory, with a text on its standard input. What it complains about is
// in the error.
func (t Tools) Check(ctx context.Context, dir string, input []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, t.Promtool, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
