// SPDX-License-Identifier: Apache-2.0

// Package hosttest does to files of a host what containers that have them can do.
package hosttest

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Lease takes a lease for writing on a file until it is closed, as root in a container can: whoever
// else opens it waits. The test is skipped on a file system without leases.
func Lease(t *testing.T, file *os.File) {
	t.Helper()
	signal.Ignore(syscall.SIGIO) // how the kernel asks for it back
	t.Cleanup(func() { signal.Reset(syscall.SIGIO) })
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this file system knows no leases: %v", err)
	}
}
