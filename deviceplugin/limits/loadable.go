// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"path/filepath"
	"runtime"

	"deviceshare/deviceplugin/host"
)

// Loader maps a file into memory as the loaders of programs do.
type Loader interface {
	// Load fails where the file's content may not be run, as on a file system mounted noexec.
	Load(path string) error
}

// Loadable looks whether programs in containers could load the library: that it is whole and made
// for this machine, and that the copies below root, a directory of containers' files, may be run. A
// loader that cannot load what /etc/ld.so.preload names says so in the container's output and goes
// on without it, and so without limits: a node on which that would happen offers no devices in the
// modes that need the library. The error says what is wrong with which file.
func Loadable(files host.Files, l Loader, root, library string) error {
	content, err := files.Read(library)
	if err != nil {
		return fmt.Errorf("look whether containers can load the interception library: %w", err)
	}
	if err := wellFormed(content); err != nil {
		return fmt.Errorf("look whether containers can load the interception library %s: %w", library, err)
	}
	probe := filepath.Join(root, "self-test")
	copied := filepath.Join(probe, "libvgpu.so")
	if err := files.MakeDir(probe, 0o700); err != nil {
		return fmt.Errorf("look whether containers can load the interception library: %w", err)
	}
	err = files.Expose(copied, content, 0o444)
	if err == nil {
		err = l.Load(copied)
	}
	for _, path := range []string{copied, probe} {
		if gone := files.Remove(path); err == nil {
			err = gone
		}
	}
	if err != nil {
		return fmt.Errorf("look whether containers can load the interception library: %w", err)
	}
	return nil
}

// wellFormed looks whether content is a shared library for programs of this machine, and all of it
// is there.
func wellFormed(content []byte) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("its %d bytes are no whole library: %w", len(content), err)
	}
	if f.Class != elf.ELFCLASS64 || f.Type != elf.ET_DYN || f.Machine != elfMachine() {
		return fmt.Errorf("it is %v %v for %v, want a 64-bit shared library for %v", f.Class, f.Type, f.Machine, elfMachine())
	}
	loaded := false
	for _, p := range f.Progs {
		loaded = loaded || p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0
		if n, err := io.Copy(io.Discard, p.Open()); err != nil || uint64(n) != p.Filesz { //nolint:gosec // a count of bytes
			return fmt.Errorf("its %d bytes end within the %v segment at %d", len(content), p.Type, p.Off)
		}
	}
	if !loaded {
		return fmt.Errorf("none of its %d segments can be run", len(f.Progs))
	}
	return nil
}

// elfMachine is the instruction set that this program was made for; programs in containers that use
// devices have the same.
func elfMachine() elf.Machine {
	switch runtime.GOARCH {
	case "arm64":
		return elf.EM_AARCH64
	default:
		return elf.EM_X86_64
	}
}
