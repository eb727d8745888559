// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// handover is the directory of a Proxy, as the means by which it and the device plugin agree on who
// is registered with the kubelet. The kubelet calls whoever registered last.
//
// The mark: the plugin leaves it before it registers itself. A registration that a Proxy holds
// since before is then no longer in force, and the Proxy may not know: it may have been frozen
// meanwhile. The mark stays when the plugin ends, and goes when the Proxy has a list of a plugin
// again.
//
// The lock: a Proxy holds it from its look at the mark until the kubelet has answered its
// registration. A plugin that has left the mark and finds the lock free knows that no Proxy comes
// after it. The kernel frees the lock of a process that ends.
type handover string

func (d handover) markPath() string { return filepath.Join(string(d), "superseded") }

func (d handover) writeMark() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("make the keeper's directory: %w", err)
	}
	if err := os.WriteFile(d.markPath(), nil, 0o600); err != nil {
		return fmt.Errorf("tell the keeper that it is superseded: %w", err)
	}
	return nil
}

func (d handover) isMarked() bool {
	_, err := os.Lstat(d.markPath())
	return err == nil
}

func (d handover) removeMark() error {
	if err := os.Remove(d.markPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("take note that the keeper is no longer superseded: %w", err)
	}
	return nil
}

// lockRegistration takes the lock for a Proxy. It is free again when the file is closed.
func (d handover) lockRegistration() (*os.File, error) { return d.lockAs(syscall.LOCK_SH) }

// isRegistering reports whether some Proxy holds the lock.
func (d handover) isRegistering() (bool, error) {
	file, err := d.lockAs(syscall.LOCK_EX)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, file.Close()
}

func (d handover) lockAs(kind int) (*os.File, error) {
	file, err := os.Open(string(d))
	if err != nil {
		return nil, fmt.Errorf("open the keeper's directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), kind|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", d, err), file.Close())
	}
	return file, nil
}
