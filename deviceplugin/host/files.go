// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Files is every effect a backend has on the host. Paths are absolute. All
// methods may be repeated with the same arguments and then give the same state.
// Implementations are safe for concurrent use on different paths.
type Files interface {
	// MakeDir makes a directory and its parents. The directory itself gets
	// exactly mode, whatever the umask; parents that are missing get 0700.
	MakeDir(path string, mode fs.FileMode) error
	// Write replaces a file as one step: a reader sees the old content or the
	// new one, and a process that has the old one mapped keeps it.
	Write(path string, content []byte, mode fs.FileMode) error
	// Expose makes a file that containers are given, unless it has this content already. It is
	// replaced as one step, and has the label of containers from the beginning, where the host
	// labels files. One that somebody has a lease on is replaced.
	Expose(path string, content []byte, mode fs.FileMode) error
	// Read returns the content of a file; errors.Is(err, fs.ErrNotExist) if
	// there is none, ErrLeased if somebody would have to give it back first. It is for
	// files that no container can write: all of the content comes into memory.
	Read(path string) ([]byte, error)
	// Exists reports whether a regular file is there. It does not open it, so it is
	// safe for a file that a container can write. Something else there is an error.
	Exists(path string) (bool, error)
	// List returns the names in a directory, sorted; none if it does not exist.
	List(path string) ([]string, error)
	// Remove removes a file or a directory with all it holds. What does not
	// exist is no mistake.
	Remove(path string) error
}

// OS is the real file system. The zero value is ready, for a host that labels no files.
type OS struct {
	Labels Labels // of what containers are given; nil labels nothing
}

// MakeDir implements Files.
func (OS) MakeDir(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make directory %s: %w", path, err)
	}
	if err := os.Mkdir(path, mode.Perm()); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("make directory %s: something else is there", path)
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("set mode of directory: %w", err)
	}
	return nil
}

// Write implements Files: a temporary file in the same directory, synced, then
// renamed, then the directory synced, so that the name survives a power cut.
func (OS) Write(path string, content []byte, mode fs.FileMode) error {
	return replaceFile(path, content, mode, nil)
}

// Expose implements Files.
func (o OS) Expose(path string, content []byte, mode fs.FileMode) error {
	have, err := o.Read(path)
	switch {
	case err == nil && bytes.Equal(have, content):
		return applyLabel(o.Labels, path)
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrLeased):
		return err
	}
	return replaceFile(path, content, mode, o.Labels)
}

// replaceFile writes a file and labels it before anybody sees it under its name.
func replaceFile(path string, content []byte, mode fs.FileMode, labels Labels) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, Unfinished(filepath.Base(path))+"*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = applyLabel(labels, f.Name())
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// Unfinished is how the names begin that Write gives to a file before it is
// complete. A process that is killed leaves one behind.
func Unfinished(name string) string { return "." + name + ".tmp-" }

// UnfinishedOf is the file that Write was about to make when it left this name
// behind; false when the name is no such one.
func UnfinishedOf(name string) (string, bool) {
	end := strings.LastIndex(name, ".tmp-")
	if end < 1 || name[0] != '.' {
		return "", false
	}
	return name[1:end], true
}

// syncDir makes renames in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}

// ErrLeased is the answer where somebody has a lease on a file (F_SETLEASE, fcntl(2)): who opens it
// would wait until that one gives it back, for 45 s.
var ErrLeased = errors.New("somebody has a lease on the file")

// Read implements Files.
func (OS) Read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("read file %s: %w", path, ErrLeased)
	}
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return b, nil
}

// Exists implements Files.
func (OS) Exists(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("look for file %s: something else is there (%v)", path, info.Mode())
	}
	return true, nil
}

// List implements Files.
func (OS) List(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list directory: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Remove implements Files.
func (OS) Remove(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
