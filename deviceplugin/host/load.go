// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Load maps the first page of a file as code, and lets it go again: the kernel refuses that where
// loaders of programs are refused it, on a file system that is mounted noexec and by rules of a
// security module. Nothing of the file is run.
func (OS) Load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("map file: %w", err)
	}
	defer func() { _ = f.Close() }()
	page, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE) //nolint:gosec // a descriptor
	if err != nil {
		return fmt.Errorf("map file %s as code: %w", path, err)
	}
	if err := unix.Munmap(page); err != nil {
		return fmt.Errorf("unmap file %s: %w", path, err)
	}
	return nil
}
