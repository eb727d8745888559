// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
)

func TestWhatAContainerLeftGoesAndWhatTheServerHasOpenStays(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("mounts can be made by root only")
	}
	if err := (Tmpfs{}).Limit(dir, host.Bound{Size: sharing.MiB, Mode: 0o700}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := (Tmpfs{}).Release(dir); err != nil {
			t.Error(err)
		}
	})
	in := func(name string) string { return filepath.Join(dir, name) }
	outside := filepath.Join(t.TempDir(), "outside")
	for _, path := range []string{in("left"), in("mapped"), outside} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.MkdirAll(in("a/b"), 0o700), os.WriteFile(in("a/b/left"), nil, 0o600), os.MkdirAll(in("c"), 0o700),
		os.WriteFile(in("c/open"), nil, 0o600), os.Symlink(outside, in("link")), syscall.Mkfifo(in("pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(in("c/open"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	file, err := os.OpenFile(in("mapped"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, 1, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(memory) }()
	_ = file.Close()
	if err := (Tmpfs{}).Empty(dir, host.Bound{Size: sharing.MiB}); err != nil {
		t.Fatal(err)
	}
	var left []string
	_ = filepath.Walk(dir, func(path string, _ os.FileInfo, _ error) error {
		left = append(left, strings.TrimPrefix(path, dir))
		return nil
	})
	if got := strings.Join(left, " "); got != " /c /c/open /mapped" {
		t.Errorf("left are %q", got)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if err := (Tmpfs{}).Empty(dir+".gone", host.Bound{Size: sharing.MiB}); err != nil {
		t.Error(err)
	}
}

func TestALogIsCutOnceItIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "control.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for i, want := range []int64{4096, 0, 12288} { // it goes on where it was: behind a hole
		if _, err := log.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		if err := (Tmpfs{}).Trim(dir, 4096); err != nil {
			t.Fatal(err)
		}
		if info, err := log.Stat(); err != nil || info.Size() != want {
			t.Errorf("after %d writes it has %d bytes, want %d (%v)", i+1, info.Size(), want, err)
		}
	}
	if err := (Tmpfs{}).Trim(dir+".gone", 1); err != nil {
		t.Error(err)
	}
}
