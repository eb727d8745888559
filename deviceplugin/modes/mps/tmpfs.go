// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
)

// Tmpfs implements Space with a tmpfs(5) on each directory. It needs CAP_SYS_ADMIN.
// The zero value is ready.
type Tmpfs struct{ host.Tmpfs }

// Empty implements Space.
func (t Tmpfs) Empty(dir string, b host.Bound) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	if _, err := removeUnopened(root); err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	return t.Shrink(dir, b)
}

// removeUnopened removes what nobody has open below a directory, and reports whether that was
// all. The server keeps its own files there for its next client.
func removeUnopened(root *os.Root) (all bool, err error) {
	dir, err := root.Open(".")
	if err != nil {
		return false, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false, err
	}
	all = true
	for _, name := range names {
		free, err := mayRemoveEntry(root, name)
		if err == nil && free {
			err = root.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		all = all && free
	}
	return all, nil
}

// mayRemoveEntry reports whether an entry may go: nobody has it open, and all below it went.
func mayRemoveEntry(root *os.Root, name string) (bool, error) {
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return false, err
	case info.IsDir():
		below, err := root.OpenRoot(name)
		if err != nil {
			return false, err
		}
		defer func() { _ = below.Close() }()
		return removeUnopened(below)
	case !info.Mode().IsRegular():
		return true, nil
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	// The kernel gives a lease for writing (fcntl(2)) only on a file that nobody else
	// has open or mapped.
	_, _, refusal := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_SETLEASE, syscall.F_WRLCK)
	if refusal == syscall.EAGAIN {
		return false, nil
	}
	if refusal != 0 {
		return false, fmt.Errorf("ask who has %s open: %w", name, refusal)
	}
	return true, nil
}

// Trim implements Space. What counts is what a file takes: one that is written on
// where it was cut has a hole before that.
func (Tmpfs) Trim(dir string, most sharing.Bytes) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("trim %s: %w", dir, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var stat syscall.Stat_t
		if err := syscall.Lstat(path, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFREG || stat.Blocks*512 <= int64(most) {
			continue
		}
		if err := os.Truncate(path, 0); err != nil {
			return fmt.Errorf("trim %s: %w", path, err)
		}
	}
	return nil
}
