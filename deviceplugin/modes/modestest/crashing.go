// SPDX-License-Identifier: Apache-2.0

package modestest

import (
	"errors"
	"io/fs"
	"sync"

	"deviceshare/deviceplugin/host"
)

// ErrCrash is what every effect answers once a Crashing has stopped.
var ErrCrash = errors.New("the process died here")

// Crashing is a file system that stops at one numbered effect, as a
// killed process would: that effect and everything after it fails. With Late the
// numbered effect itself still happens and only its answer is lost. Reads do not
// count as effects but fail after the stop too.
type Crashing struct {
	Under host.Files
	At    int // number of the effect, from 0; negative never stops
	Late  bool

	mu      sync.Mutex
	count   int
	stopped bool
}

// Effects is how many effects were asked for so far.
func (c *Crashing) Effects() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// Effect runs do unless the process is dead, and dies at the chosen number. Other
// effects than those on files go through it too, so that all are numbered in the
// order in which they happen.
func (c *Crashing) Effect(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ErrCrash
	}
	here := c.count == c.At
	c.count++
	if !here {
		return do()
	}
	c.stopped = true
	if c.Late {
		_ = do() // the answer is lost with the process
	}
	return ErrCrash
}

// Dead reports that the process has died.
func (c *Crashing) Dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// MakeDir implements host.Files.
func (c *Crashing) MakeDir(path string, mode fs.FileMode) error {
	return c.Effect(func() error { return c.Under.MakeDir(path, mode) })
}

// Write implements host.Files.
func (c *Crashing) Write(path string, content []byte, mode fs.FileMode) error {
	return c.Effect(func() error { return c.Under.Write(path, content, mode) })
}

// Expose implements host.Files.
func (c *Crashing) Expose(path string, content []byte, mode fs.FileMode) error {
	return c.Effect(func() error { return c.Under.Expose(path, content, mode) })
}

// Remove implements host.Files.
func (c *Crashing) Remove(path string) error {
	return c.Effect(func() error { return c.Under.Remove(path) })
}

// Read implements host.Files.
func (c *Crashing) Read(path string) ([]byte, error) {
	if c.Dead() {
		return nil, ErrCrash
	}
	return c.Under.Read(path)
}

// Exists implements host.Files.
func (c *Crashing) Exists(path string) (bool, error) {
	if c.Dead() {
		return false, ErrCrash
	}
	return c.Under.Exists(path)
}

// List implements host.Files.
func (c *Crashing) List(path string) ([]string, error) {
	if c.Dead() {
		return nil, ErrCrash
	}
	return c.Under.List(path)
}
