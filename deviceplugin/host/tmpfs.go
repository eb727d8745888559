// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"deviceshare/sharing"
)

// Bound is what a directory may hold, and who may write there.
type Bound struct {
	Size sharing.Bytes // more than 0
	Mode fs.FileMode
	// NoLinks: symbolic links in the directory are not followed (Linux 5.10 and later).
	// A container could otherwise lead a process of the host, which is root, to other files.
	NoLinks bool
	// AtLeast: a directory that may hold more keeps that.
	AtLeast bool
}

// Space limits how much containers can write into directories of the host. Paths are absolute. All
// methods may be repeated. Implementations are safe for concurrent use on different directories.
type Space interface {
	// Limit gives a directory that is there a file system of its own of this size,
	// which the container runtime sees too. One that it has already is kept with
	// what is in it. Where the host labels files, the directory gets the label of containers, and
	// passes it on to what is made in it. An error is a host where that is not possible.
	Limit(dir string, b Bound) error
	// Release undoes Limit, and removes what is in the directory. One that is not there is no
	// mistake.
	Release(dir string) error
	// Detach undoes Limit on the host. Containers that have the directory mounted keep it with its
	// files.
	Detach(dir string) error
	// Put writes a file of a shelf: a directory that is made with a fixed number of files, which
	// cannot grow. Shown says where they are. The content is a page at most. One call at a time may
	// have a shelf. ErrFull is the answer where every file is in use.
	Put(shelf, name string, content []byte, mode fs.FileMode) error
	// Drop takes a file off a shelf. One that is not there is no mistake.
	Drop(shelf, name string) error
}

// Tmpfs implements Space with a tmpfs(5) on each directory. It needs CAP_SYS_ADMIN.
// The zero value is ready, for a host that labels no files.
type Tmpfs struct {
	Labels Labels // of what containers are given; nil labels nothing
}

// Limit implements Space. A file costs memory beside its content, so their number is
// limited too: one for each 4 KiB, and a few for directories.
func (t Tmpfs) Limit(dir string, b Bound) error {
	there, err := ownTmpfs(dir)
	if err != nil {
		return err
	}
	flags := flagsOf(b)
	size := sizeOptions(b.Size)
	if there {
		if err := resizeTmpfs(dir, flags, size, b); err != nil {
			return err
		}
		return errors.Join(hostSees(dir), applyLabel(t.Labels, dir))
	}
	mode := uint32(b.Mode.Perm())
	if b.Mode&fs.ModeSticky != 0 {
		mode |= syscall.S_ISVTX
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("%s,mode=%o", size, mode)); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
	}
	if err := errors.Join(hostSees(dir), applyLabel(t.Labels, dir)); err != nil {
		return errors.Join(err, unmountTmpfs(dir))
	}
	return nil
}

// sizeOptions are the mount options for a size, with as many files as fit and a few.
func sizeOptions(size sharing.Bytes) string {
	return fmt.Sprintf("size=%d,nr_inodes=%d", size, size>>12+64)
}

// Shrink gives a directory that has a limit a smaller one, unless more is in use. One without a
// limit is left as it is.
func (Tmpfs) Shrink(dir string, b Bound) error {
	if there, err := isLimited(dir); err != nil || !there {
		return err
	}
	var now syscall.Statfs_t
	if err := syscall.Statfs(dir, &now); err != nil {
		return fmt.Errorf("look at the tmpfs on %s: %w", dir, err)
	}
	if b.Size >= sharing.Bytes(now.Blocks)*sharing.Bytes(now.Bsize) { //nolint:gosec // a tmpfs is no larger than memory
		return nil
	}
	err := resizeTmpfs(dir, flagsOf(b), sizeOptions(b.Size), b)
	if errors.Is(err, syscall.EINVAL) {
		return nil // so the kernel says that more is in use
	}
	return err
}

// flagsOf are the mount flags of a bound.
func flagsOf(b Bound) uintptr {
	flags := uintptr(syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC)
	if b.NoLinks {
		flags |= unix.MS_NOSYMFOLLOW // kernels before 5.10 pass it over
	}
	return flags
}

// resizeTmpfs gives a tmpfs another size, unless it has that one.
func resizeTmpfs(dir string, flags uintptr, options string, b Bound) error {
	var now syscall.Statfs_t
	if err := syscall.Statfs(dir, &now); err != nil {
		return fmt.Errorf("look at the tmpfs on %s: %w", dir, err)
	}
	block := uint64(now.Bsize)                   //nolint:gosec // it is not negative
	want := (uint64(b.Size) + block - 1) / block //nolint:gosec // nor is this
	if now.Blocks == want || b.AtLeast && now.Blocks > want {
		return nil
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags|syscall.MS_REMOUNT, options); err != nil {
		return fmt.Errorf("change the tmpfs on %s to %d bytes, which fails where more is in use: %w", dir, b.Size, err)
	}
	return nil
}

// ownTmpfs reports whether a directory has a tmpfs of its own. Another file system
// there is an error.
func ownTmpfs(dir string) (bool, error) {
	var here, above syscall.Stat_t
	if err := errors.Join(syscall.Lstat(dir, &here), syscall.Lstat(filepath.Dir(dir), &above)); err != nil {
		return false, fmt.Errorf("look at %s: %w", dir, err)
	}
	if here.Dev == above.Dev {
		return false, nil
	}
	var kind syscall.Statfs_t
	if err := syscall.Statfs(dir, &kind); err != nil {
		return false, fmt.Errorf("look at %s: %w", dir, err)
	}
	if kind.Type != unix.TMPFS_MAGIC {
		return false, fmt.Errorf("another file system than a tmpfs is mounted on %s", dir)
	}
	return true, nil
}

// hostSees refuses a tmpfs that the host's first process does not see: then the
// container runtime would mount what is below it, which has no limit. A process that
// may not ask runs as one of the host.
func hostSees(dir string) error {
	mounts, err := os.Open("/proc/1/mountinfo")
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the tmpfs on %s on the host: %w", dir, err)
	}
	defer func() { _ = mounts.Close() }()
	var stat syscall.Stat_t
	if err := syscall.Lstat(dir, &stat); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	found, err := isMounted(mounts, stat.Dev)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the tmpfs on %s on the host: %w", dir, err)
	}
	if !found {
		return fmt.Errorf("the host does not see the tmpfs on %s: the volume needs mountPropagation: Bidirectional", dir)
	}
	return nil
}

// isMounted looks for a file system among mounts (proc_pid_mountinfo(5)), by its number.
func isMounted(mounts io.Reader, dev uint64) (bool, error) {
	found, err := mountinfo.GetMountsFromReader(mounts, func(m *mountinfo.Info) (skip, stop bool) {
		is := unix.Mkdev(uint32(m.Major), uint32(m.Minor)) == dev //nolint:gosec // neither is negative
		return !is, is
	})
	return len(found) > 0, err
}

// Release implements Space. The content goes first: a daemon of another device has
// a copy of the mount, which would keep it.
func (Tmpfs) Release(dir string) error {
	if there, err := isLimited(dir); err != nil || !there {
		return err
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name.Name())); err != nil {
			return fmt.Errorf("empty %s: %w", dir, err)
		}
	}
	return unmountTmpfs(dir)
}

// Detach implements Space.
func (Tmpfs) Detach(dir string) error {
	if there, err := isLimited(dir); err != nil || !there {
		return err
	}
	return unmountTmpfs(dir)
}

// isLimited is ownTmpfs where the directory need not be there.
func isLimited(dir string) (bool, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return ownTmpfs(dir)
}

func unmountTmpfs(dir string) error {
	if err := syscall.Unmount(dir, syscall.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}
