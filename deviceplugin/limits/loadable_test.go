// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/modestest"
)

// tried is what Loadable says of a library with this content.
func tried(t *testing.T, content []byte) error {
	t.Helper()
	dir := t.TempDir()
	library := filepath.Join(dir, "libvgpu.so")
	if err := os.WriteFile(library, content, 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "state", "mode")
	err := Loadable(host.OS{}, host.OS{}, root, library)
	if left, readErr := os.ReadDir(root); readErr == nil && len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	return err
}

func TestALibraryThatNoContainerCouldLoadIsTold(t *testing.T) {
	changed := func(change func(*elf.Header64)) []byte {
		content := modestest.Library()
		var h elf.Header64
		if err := binary.Read(bytes.NewReader(content), binary.LittleEndian, &h); err != nil {
			t.Fatal(err)
		}
		change(&h)
		var out bytes.Buffer
		if err := binary.Write(&out, binary.LittleEndian, h); err != nil {
			t.Fatal(err)
		}
		return append(out.Bytes(), content[out.Len():]...)
	}
	for name, tc := range map[string]struct {
		content []byte
		want    string
	}{
		"a library of this machine": {modestest.Library(), ""},
		"an empty file":             {nil, "its 0 bytes are no whole library"},
		"a text":                    {[]byte("#!/bin/sh\n"), "no whole library"},
		"a program":                 {changed(func(h *elf.Header64) { h.Type = uint16(elf.ET_EXEC) }), "want a 64-bit shared library"},
		"another machine's library": {changed(func(h *elf.Header64) { h.Machine = uint16(elf.EM_RISCV) }), "for EM_RISCV, want"},
		"a library without code":    {changed(func(h *elf.Header64) { h.Phnum = 0 }), "none of its 0 segments can be run"},
		"half of a library":         {modestest.Library()[:2048], "end within the PT_LOAD segment"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tried(t, tc.content)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if err := Loadable(host.OS{}, host.OS{}, t.TempDir(), "/nowhere/libvgpu.so"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a library: %v", err)
	}
}

// The oracle is the machine's own loader, which goes on without a library that it cannot load.
func TestNoPartOfALibraryThatTheLoaderRefusesIsTakenForIt(t *testing.T) {
	whole, err := os.ReadFile(systemLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := tried(t, whole); err != nil {
		t.Fatalf("the machine's own library: %v", err)
	}
	refused := 0
	for range 60 {
		part := whole[:rand.IntN(len(whole))]
		path := filepath.Join(t.TempDir(), "part.so")
		if err := os.WriteFile(path, part, 0o600); err != nil {
			t.Fatal(err)
		}
		nothing := exec.Command("/bin/true")
		nothing.Env = []string{"LD_PRELOAD=" + path}
		said, err := nothing.CombinedOutput()
		if err == nil && len(said) == 0 {
			continue // what is missing is not loaded
		}
		refused++
		if err := tried(t, part); err == nil {
			t.Errorf("%d of %d bytes: the loader says %q, and they are taken for a library", len(part), len(whole), said)
		}
	}
	if refused == 0 {
		t.Error("the loader refused none")
	}
}

// systemLibrary is a library that every program of this machine could load.
func systemLibrary(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"/lib/*/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	t.Skip("no libm.so.6 of glibc")
	return ""
}

func TestWhereNothingMayBeRunNoLibraryIsLoadable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it mounts a file system: that takes root")
	}
	dir := t.TempDir()
	library, root := filepath.Join(dir, "libvgpu.so"), filepath.Join(dir, "state")
	if err := errors.Join(os.WriteFile(library, modestest.Library(), 0o600), os.Mkdir(root, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOEXEC, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := Loadable(host.OS{}, host.OS{}, root, library); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), root) {
		t.Errorf("got %v, want that the file below %s may not be run", err, root)
	}
	if err := unix.Mount("", root, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	if err := Loadable(host.OS{}, host.OS{}, root, library); err != nil {
		t.Errorf("once programs may be run there: %v", err)
	}
}
