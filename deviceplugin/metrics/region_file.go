// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Of Linux; package syscall does not have them.
const (
	openPath  = 0x200000 // O_PATH
	getOFDLck = 36       // F_OFD_GETLK
)

// ReadRegion reads the region at path, whose directory the container can write. goAhead
// is asked before every process that is looked at; an error of it ends the
// reading. The error is fs.ErrNotExist where there is no file: no program of the
// container has used CUDA yet.
//
// The file is never mapped, because a container that truncates it would kill us; no
// link is followed, and nothing is opened that is no regular file: opening a device
// node or a pipe has effects, and may block.
func ReadRegion(path string, goAhead func() error) (Region, error) {
	file, err := openRegularFile(path)
	if err != nil {
		return Region{}, fmt.Errorf("open region %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	fd := file.Fd()
	region, err := DecodeRegion(file, func(slot int) (bool, error) {
		if err := goAhead(); err != nil {
			return false, err
		}
		return isByteLocked(fd, slotLockAt+int64(slot))
	})
	if err != nil {
		return Region{}, fmt.Errorf("%s: %w", path, err)
	}
	return region, nil
}

// openRegularFile finds out what path is before it is opened for reading, and opens what was
// looked at, whatever lies at path by then. A lease of somebody else is an error
// and no wait.
func openRegularFile(path string) (*os.File, error) {
	found, err := syscall.Open(path, openPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(found) }()
	var stat syscall.Stat_t
	if err := syscall.Fstat(found, &stat); err != nil {
		return nil, err
	}
	if stat.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return nil, fmt.Errorf("it is no regular file (mode %#o)", stat.Mode)
	}
	fd, err := syscall.Open("/proc/self/fd/"+strconv.Itoa(found), syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// isByteLocked asks whether anybody has a byte locked, as libvgpu.so asks: a process has
// that of its slot for life, and the kernel takes the lock back however it ends. The
// question takes no lock. A kernel before 3.15, which does not know such locks, has
// no answer: then every slot counts.
func isByteLocked(fd uintptr, byte int64) (bool, error) {
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: byte, Len: 1}
	switch err := syscall.FcntlFlock(fd, getOFDLck, &lock); {
	case errors.Is(err, syscall.EINVAL):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("ask for the lock of byte %d: %w", byte, err)
	}
	return lock.Type != syscall.F_UNLCK, nil
}
