// SPDX-License-Identifier: Apache-2.0

// Package window opens a real Chromium without a screen and does there what a person does: load a
// page, look, press keys. It installs Debian's package of Chromium where it is missing.
package window

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Window is one window with one tab. It is for one caller at a time.
type Window struct {
	program *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// Open installs Chromium if it is missing, builds the program that drives it, and opens a window.
// It is closed by Close, and with ctx. Repo is the root of the repository.
func Open(ctx context.Context, repo string, progress func(string)) (*Window, error) {
	chromium, err := find(ctx, progress)
	if err != nil {
		return nil, err
	}
	driver := filepath.Join(repo, ".sandbox", "bin", "browser")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", driver, ".")
	build.Dir = filepath.Join(repo, "e2e", "browser")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build e2e/browser: %w\n%s", err, out)
	}
	w := &Window{program: exec.CommandContext(ctx, driver, chromium)}
	w.program.Stderr = os.Stderr
	if w.in, err = w.program.StdinPipe(); err != nil {
		return nil, fmt.Errorf("open a window: %w", err)
	}
	out, err := w.program.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open a window: %w", err)
	}
	w.out = json.NewDecoder(bufio.NewReader(out))
	if err := w.program.Start(); err != nil {
		return nil, fmt.Errorf("open a window: %w", err)
	}
	return w, nil
}

// Close closes the window.
func (w *Window) Close() error {
	_ = w.in.Close()
	return w.program.Wait()
}

// find returns the path of Chromium and installs Debian's package where it is missing.
func find(ctx context.Context, progress func(string)) (string, error) {
	const name, missing = "chromium", "chromium is missing: install it (on Debian: apt-get install chromium fonts-dejavu-core)"
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return "", errors.New(missing)
	}
	progress("installing chromium")
	install := "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 install -y --no-install-recommends chromium fonts-dejavu-core"
	if out, err := exec.CommandContext(ctx, "sh", "-c", install).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", missing, err, out)
	}
	return exec.LookPath(name)
}

// do sends one command and reads the answer into a value, unless that is nil.
func (w *Window) do(command map[string]any, into any) error {
	text, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if _, err := w.in.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("tell the browser %s: %w", text, err)
	}
	var answer struct {
		Value json.RawMessage
		Error string
	}
	if err := w.out.Decode(&answer); err != nil {
		return fmt.Errorf("the browser does not answer %s: %w", text, err)
	}
	switch {
	case answer.Error != "":
		return fmt.Errorf("%s: %s", text, answer.Error)
	case into == nil || answer.Value == nil:
		return nil
	}
	if err := json.Unmarshal(answer.Value, into); err != nil {
		return fmt.Errorf("the browser answers %s with %s: %w", text, answer.Value, err)
	}
	return nil
}

// Load loads a page.
func (w *Window) Load(url string) error { return w.do(map[string]any{"open": url}, nil) }

// Value evaluates an expression of JavaScript.
func (w *Window) Value(expression string, into any) error {
	return w.do(map[string]any{"eval": expression}, into)
}

// Wait evaluates an expression until its value counts as true.
func (w *Window) Wait(expression string, limit time.Duration) error {
	return w.do(map[string]any{"wait": expression, "seconds": limit.Seconds()}, nil)
}

// Type types a text where the focus is.
func (w *Window) Type(text string) error { return w.do(map[string]any{"keys": text}, nil) }

// Press presses a key that writes nothing, by its name in the DOM.
func (w *Window) Press(key string) error { return w.do(map[string]any{"key": key}, nil) }

// Resize changes the size of the window, in pixels.
func (w *Window) Resize(width, height int) error {
	return w.do(map[string]any{"width": width, "height": height}, nil)
}

// Prefer has the system prefer the theme light or dark.
func (w *Window) Prefer(theme string) error { return w.do(map[string]any{"theme": theme}, nil) }

// Picture writes what the window shows into a file, as PNG.
func (w *Window) Picture(path string) error { return w.do(map[string]any{"picture": path}, nil) }

// Complaints are what the browser's console has said that is wrong: errors of the page, and what
// its policy forbade.
func (w *Window) Complaints() ([]string, error) {
	var out []string
	return out, w.do(map[string]any{"complaints": true}, &out)
}
