// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocketPath is the longest path of a Unix socket, in bytes (unix(7)).
const maxSocketPath = 107

// PrivateListener is a Unix socket that only its owner can reach.
type PrivateListener struct {
	*net.UnixListener
	dir *os.File // its lock says that the socket is taken
}

// Close stops listening, removes the socket, and lets the next one have it.
func (l *PrivateListener) Close() error {
	return errors.Join(l.UnixListener.Close(), l.dir.Close())
}

// ListenPrivate makes a Unix socket and its directory, which only this user can enter. One
// process at a time has the directory: another one is waited for until it ends, or ctx does.
// A socket that a process before left behind is replaced.
func ListenPrivate(ctx context.Context, path string) (*PrivateListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen on %s: the path of a socket has at most %d bytes", path, maxSocketPath)
	}
	if err := (OS{}).MakeDir(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener, err := listenLocked(ctx, dir, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), dir.Close())
	}
	return &PrivateListener{UnixListener: listener, dir: dir}, nil
}

func listenLocked(ctx context.Context, dir *os.File, path string) (*net.UnixListener, error) {
	if err := lockDirectory(ctx, dir); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// lockDirectory takes the lock of an open directory, which the kernel gives back with the process.
func lockDirectory(ctx context.Context, dir *os.File) error {
	for {
		err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another process has the directory: %w", context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
