// SPDX-License-Identifier: Apache-2.0

package modestest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
)

// Rooms is a host.Space without mounts, for tests that are not root: it notes the limits
// and refuses nothing. The zero value is ready.
type Rooms struct {
	mu     sync.Mutex
	bounds map[string]host.Bound
}

// Limit implements host.Space.
func (r *Rooms) Limit(dir string, b host.Bound) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || b.Size <= 0 {
		return fmt.Errorf("limit %s to %d bytes: %w", dir, b.Size, errors.Join(err, fs.ErrInvalid))
	}
	if r.bounds == nil {
		r.bounds = map[string]host.Bound{}
	}
	r.bounds[dir] = b
	return nil
}

// Detach implements host.Space. Nobody has anything mounted.
func (r *Rooms) Detach(dir string) error { return r.Release(dir) }

// Put implements host.Space.
func (r *Rooms) Put(shelf, name string, content []byte, mode fs.FileMode) error {
	if err := r.Limit(shelf, host.Bound{Size: sharing.MiB, Mode: 0o700}); err != nil {
		return err
	}
	if err := (host.OS{}).MakeDir(host.Shown(shelf), 0o755); err != nil {
		return err
	}
	return host.OS{}.Write(filepath.Join(host.Shown(shelf), name), content, mode)
}

// Drop implements host.Space.
func (r *Rooms) Drop(shelf, name string) error {
	return host.OS{}.Remove(filepath.Join(host.Shown(shelf), name))
}

// Release implements host.Space.
func (r *Rooms) Release(dir string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.release(dir)
}

func (r *Rooms) release(dir string) error {
	if _, there := r.bounds[dir]; !there {
		return nil
	}
	delete(r.bounds, dir)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// Reboot takes every limit off, with what was in the directories.
func (r *Rooms) Reboot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dir := range slices.Collect(maps.Keys(r.bounds)) {
		_ = r.release(dir)
	}
}

// Bound is the limit of a directory; false if it has none.
func (r *Rooms) Bound(dir string) (host.Bound, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, there := r.bounds[dir]
	return b, there
}

// Space is a host.Space whose effects are among those of c, as a process has both.
func (c *Crashing) Space(under host.Space) host.Space { return crashingSpace{c, under} }

type crashingSpace struct {
	dying *Crashing
	under host.Space
}

func (s crashingSpace) Limit(dir string, b host.Bound) error {
	return s.dying.Effect(func() error { return s.under.Limit(dir, b) })
}

func (s crashingSpace) Detach(dir string) error {
	return s.dying.Effect(func() error { return s.under.Detach(dir) })
}

func (s crashingSpace) Put(shelf, name string, content []byte, mode fs.FileMode) error {
	return s.dying.Effect(func() error { return s.under.Put(shelf, name, content, mode) })
}

func (s crashingSpace) Drop(shelf, name string) error {
	return s.dying.Effect(func() error { return s.under.Drop(shelf, name) })
}

func (s crashingSpace) Release(dir string) error {
	return s.dying.Effect(func() error { return s.under.Release(dir) })
}
