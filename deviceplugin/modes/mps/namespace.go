// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// startInside starts a command in a mount namespace like the daemon's: in the root directory
// of the driver, with the daemon's directory at the same path there, and with its shm as
// /dev/shm, which its clients have too.
func (p Program) startInside(d Daemon, cmd *exec.Cmd) error {
	if cmd.Stdin == nil {
		// Opened here, since the driver's root may have no /dev/null.
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer func() { _ = null.Close() }()
		cmd.Stdin = null
	}
	return onThread(func() error {
		if err := p.enterNamespace(d); err != nil {
			return fmt.Errorf("make the mount namespace of the MPS control daemon of device %s: %w", d.Device, err)
		}
		return cmd.Start()
	})
}

// onThread runs do on a thread that ends with it. A child has the namespaces and the root
// directory of the thread that starts it, and do may change both.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if unix.Gettid() == os.Getpid() {
			// Go keeps the first thread of a process for ever, and /proc/self shows what is
			// changed on it. It stays locked until another one has done the work.
			defer runtime.UnlockOSThread()
			done <- onThread(do)
			return
		}
		done <- do()
	}()
	return <-done
}

// enterNamespace moves this thread into a mount namespace of its own and makes the mounts. Nothing
// of that reaches other processes.
func (p Program) enterNamespace(d Daemon) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare the mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part the mounts from the others: %w", err)
	}
	// Taken before the root directory changes, put in place after: then links in the driver's
	// root lead to places there.
	dir, err := unix.OpenTree(unix.AT_FDCWD, d.Dir, unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.Dir, err)
	}
	defer func() { _ = unix.Close(dir) }()
	shm, err := unix.OpenTree(unix.AT_FDCWD, d.Shm(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.Shm(), err)
	}
	defer func() { _ = unix.Close(shm) }()
	if !p.ownRoot() {
		if err := errors.Join(unix.Chroot(p.Root), unix.Chdir("/")); err != nil {
			return fmt.Errorf("enter the driver's root %s: %w", p.Root, err)
		}
		if err := mountTree(dir, d.Dir); err != nil {
			return err
		}
	}
	return mountTree(shm, filepath.Join("/dev", "shm"))
}

// mountTree mounts what was taken from elsewhere on a directory, which is made where it is missing.
func mountTree(tree int, at string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return fmt.Errorf("make a place for a mount: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount on %s: %w", at, err)
	}
	return nil
}
