// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"deviceshare/deviceplugin/host/hosttest"
)

func TestWritingReplacesAFileWithoutTouchingWhoHasItOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib")
	if err := (OS{}).Write(path, []byte("old"), 0o444); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := (OS{}).Write(path, []byte("new"), 0o444); err != nil {
		t.Fatal(err)
	}
	held := make([]byte, 3)
	if _, err := open.Read(held); err != nil || string(held) != "old" {
		t.Errorf("the open file reads %q, %v; want the old content", held, err)
	}
	if now, err := (OS{}).Read(path); err != nil || string(now) != "new" {
		t.Errorf("the path reads %q, %v; want the new content", now, err)
	}
	names, err := (OS{}).List(filepath.Dir(path))
	if err != nil || len(names) != 1 {
		t.Errorf("the directory holds %v, %v; want only the file", names, err)
	}
}

func TestAWriteThatCannotHappenLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "busy")
	if err := os.MkdirAll(filepath.Join(target, "inside"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (OS{}).Write(target, []byte("x"), 0o600); err == nil {
		t.Fatal("a directory was replaced by a file")
	}
	names, _ := (OS{}).List(dir)
	if len(names) != 1 {
		t.Errorf("the directory holds %v; want only what was there", names)
	}
}

func TestADirectoryGetsExactlyTheModeAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parent", "shared")
	want := fs.FileMode(0o777) | fs.ModeSticky
	for range 2 {
		if err := (OS{}).MakeDir(path, want); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode() &^ fs.ModeDir; got != want {
		t.Errorf("mode is %v, want %v", got, want)
	}
	parent, _ := os.Stat(filepath.Dir(path))
	if parent.Mode().Perm() != 0o700 {
		t.Errorf("the parent has mode %v, want 0700", parent.Mode().Perm())
	}
}

func TestALinkInPlaceOfADirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	if err := (OS{}).MakeDir(link, 0o777); err == nil {
		t.Error("a symbolic link was taken for the directory")
	}
}

func TestWhatIsMissingIsNoMistakeToListAndRemove(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no", "such")
	if names, err := (OS{}).List(missing); err != nil || len(names) != 0 {
		t.Errorf("List gives %v, %v", names, err)
	}
	if err := (OS{}).Remove(missing); err != nil {
		t.Errorf("Remove gives %v", err)
	}
	if _, err := (OS{}).Read(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read gives %v, want fs.ErrNotExist", err)
	}
}

func TestAFileIsLookedForWithoutBeingOpened(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("/dev/zero", link)); err != nil {
		t.Fatal(err)
	}
	if there, err := (OS{}).Exists(file); !there || err != nil {
		t.Errorf("a file of 1 TiB: %v, %v", there, err)
	}
	for _, other := range []string{pipe, link, dir} {
		if there, err := (OS{}).Exists(other); there || err == nil {
			t.Errorf("%s is taken for a file: %v, %v", other, there, err)
		}
	}
	if there, err := (OS{}).Exists(filepath.Join(dir, "none")); there || err != nil {
		t.Errorf("what is not there: %v, %v", there, err)
	}
}

func TestANameThatIsLeftUnfinishedTellsWhatItWasFor(t *testing.T) {
	for name, want := range map[string]string{
		Unfinished("GPU-x") + "123": "GPU-x", ".a.tmp-b.tmp-1": "a.tmp-b", "GPU-x": "", ".hidden": "", "GPU-x.tmp-1": "", ".tmp-1": "",
	} {
		if got, ok := UnfinishedOf(name); got != want || ok != (want != "") {
			t.Errorf("%s is left of %q (%v), want %q", name, got, ok, want)
		}
	}
}

func TestALeaseOnAFileIsToldAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leased")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	holder, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	hosttest.Lease(t, holder)
	if _, err := (OS{}).Read(path); !errors.Is(err, ErrLeased) {
		t.Errorf("reading is answered with %v", err)
	}
	if err := (OS{}).Write(path, []byte("y"), 0o600); err != nil {
		t.Error(err)
	}
	if got, err := (OS{}).Read(path); err != nil || string(got) != "y" {
		t.Errorf("what took its place reads %q (%v)", got, err)
	}
}
