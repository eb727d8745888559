// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"deviceshare/sharing"
)

// A shelf holds small files that containers write while other containers come and go. If its file
// system had a free page, one container could take it by writing on in its own file, and no file
// could be made for the next container. So there is none: all files are made with a page each
// before any container sees the shelf, and the spare ones lie in a directory that no container
// sees. To put a file is to rename a spare one and to overwrite it. To drop one is to rename it
// back.
//
// A container can give up the page of its own file (by truncating it), and another may take that
// page. The file is then of no use until the shelf is made anew.

// shelfFiles is how many files there are, and pages: more than a kubelet has containers.
const shelfFiles = 512

// ErrFull is the answer of a shelf without a spare file.
var ErrFull = errors.New("every file of the shelf is in use")

// Shown is the directory of a shelf's files that were put.
func Shown(shelf string) string { return filepath.Join(shelf, "shown") }

func spareDir(shelf string) string { return filepath.Join(shelf, "spare") }

// Put implements Space.
func (t Tmpfs) Put(shelf, name string, content []byte, mode fs.FileMode) error {
	if len(content) == 0 || len(content) > os.Getpagesize() {
		return fmt.Errorf("put %s on shelf %s: it has %d bytes, want 1 to %d", name, shelf, len(content), os.Getpagesize())
	}
	if err := t.stockShelf(shelf); err != nil {
		return err
	}
	if err := applyLabel(t.Labels, Shown(shelf)); err != nil {
		return fmt.Errorf("put %s on shelf %s: %w", name, shelf, err)
	}
	path := filepath.Join(Shown(shelf), name)
	have, err := OS{}.Read(path)
	switch {
	case err == nil && bytes.Equal(have, content):
		return applyLabel(t.Labels, path)
	case err == nil, errors.Is(err, ErrLeased):
		if err := t.Drop(shelf, name); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	spare, err := OS{}.List(spareDir(shelf))
	if err != nil {
		return err
	}
	for _, s := range spare {
		from := filepath.Join(spareDir(shelf), s)
		if err := overwriteFile(from, content, mode); errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.ENOSPC) {
			continue // somebody has a lease on it, or has its page
		} else if err != nil {
			return fmt.Errorf("put %s on shelf %s: %w", name, shelf, err)
		}
		err := applyLabel(t.Labels, from)
		if err == nil {
			err = os.Rename(from, path)
		}
		if err != nil {
			return fmt.Errorf("put %s on shelf %s: %w", name, shelf, err)
		}
		return nil
	}
	return fmt.Errorf("put %s on shelf %s: %w", name, shelf, ErrFull)
}

// stockShelf makes a shelf with all its files, if it is not there or somebody was stopped in
// between.
func (t Tmpfs) stockShelf(shelf string) error {
	page := os.Getpagesize()
	if err := t.Limit(shelf, Bound{Size: sharing.Bytes(shelfFiles * page), Mode: 0o700}); err != nil {
		return err
	}
	var now syscall.Statfs_t
	if err := syscall.Statfs(shelf, &now); err != nil {
		return fmt.Errorf("look at shelf %s: %w", shelf, err)
	}
	if now.Bfree == 0 {
		return nil
	}
	if err := errors.Join(OS{}.MakeDir(Shown(shelf), 0o755), OS{}.MakeDir(spareDir(shelf), 0o700)); err != nil {
		return err
	}
	for n := range shelfFiles {
		err := os.WriteFile(filepath.Join(spareDir(shelf), strconv.Itoa(n)), make([]byte, page), 0o600)
		if errors.Is(err, syscall.ENOSPC) {
			return os.Remove(filepath.Join(spareDir(shelf), strconv.Itoa(n)))
		}
		if err != nil {
			return fmt.Errorf("stock shelf %s: %w", shelf, err)
		}
	}
	return nil
}

// overwriteFile gives a file another content without giving up its page. It does not wait for a
// lease.
func overwriteFile(path string, content []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(content, 0)
	return errors.Join(err, file.Truncate(int64(len(content))), file.Chmod(mode), file.Close())
}

// Drop implements Space.
func (Tmpfs) Drop(shelf, name string) error {
	from, to := filepath.Join(Shown(shelf), name), filepath.Join(spareDir(shelf), name)
	if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop %s from shelf %s: %w", name, shelf, err)
	}
	return nil
}
