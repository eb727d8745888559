// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"deviceshare/deviceplugin/host/hosttest"
	"deviceshare/sharing"
)

// put puts a file and looks at it.
func put(t *testing.T, shelf, name, text string, mode os.FileMode) {
	t.Helper()
	if err := (Tmpfs{}).Put(shelf, name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(Shown(shelf), name)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text || info.Mode() != mode {
		t.Errorf("%s holds %q with mode %v (%v), want %q with %v", name, got, info.Mode(), err, text, mode)
	}
}

// shelf is a directory for one.
func shelf(t *testing.T) string {
	t.Helper()
	dir := limited(t, Bound{Size: sharing.MiB, Mode: 0o700})
	if err := (Tmpfs{}).Release(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// grab writes on in a file for as long as there is room, and returns how many bytes it got.
func grab(t *testing.T, path string) (n int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	for ; err == nil; n++ {
		_, err = file.WriteAt([]byte("x"), info.Size()+n)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing on ends with %v", err)
	}
	return n - 1
}

func TestFilesOfAShelfCannotGrow(t *testing.T) {
	dir := shelf(t)
	put(t, dir, "mine", "some text", 0o666)
	put(t, dir, "other", "another text", 0o444)
	if got, page := grab(t, filepath.Join(Shown(dir), "mine")), int64(os.Getpagesize()); got >= page {
		t.Errorf("a file took %d bytes beside its page", got)
	}
	put(t, dir, "third", "x", 0o600)
	put(t, dir, "other", "replaced, and longer than before", 0o400)
	put(t, dir, "other", "short", 0o444)
	for range 2 {
		if err := (Tmpfs{}).Drop(dir, "other"); err != nil {
			t.Error(err)
		}
	}
	if names, err := (OS{}).List(Shown(dir)); err != nil || strings.Join(names, " ") != "mine third" {
		t.Errorf("shown are %v (%v)", names, err)
	}
}

func TestAShelfHasAPlaceForEachFileAndSaysWhenItIsFull(t *testing.T) {
	dir := shelf(t)
	for n := range shelfFiles {
		put(t, dir, "f"+strconv.Itoa(n), "x", 0o600)
	}
	if err := (Tmpfs{}).Put(dir, "more", []byte("x"), 0o600); !errors.Is(err, ErrFull) {
		t.Errorf("one more is answered with %v", err)
	}
	if err := (Tmpfs{}).Drop(dir, "f7"); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "more", "x", 0o600)
}

func TestWhoGivesUpAPageTakesOnePlaceAndNoMore(t *testing.T) {
	dir := shelf(t)
	put(t, dir, "greedy", "x", 0o666)
	for round := range 5 {
		name := "f" + strconv.Itoa(round)
		put(t, dir, name, "x", 0o666)
		if err := os.Truncate(filepath.Join(Shown(dir), name), 0); err != nil {
			t.Fatal(err)
		}
		if got, page := grab(t, filepath.Join(Shown(dir), "greedy")), int64(os.Getpagesize()); got >= 2*page {
			t.Errorf("round %d: %d bytes came with one page", round, got)
		}
		if err := (Tmpfs{}).Drop(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	left := 0
	for ; (Tmpfs{}).Put(dir, fmt.Sprintf("g%d", left), []byte("x"), 0o600) == nil; left++ {
	}
	if want := shelfFiles - 1 - 5; left != want {
		t.Errorf("%d places are left, want %d", left, want)
	}
}

func TestAShelfThatSomebodyBeganIsStocked(t *testing.T) {
	dir := shelf(t)
	if err := (Tmpfs{}).Limit(dir, Bound{Size: sharing.Bytes(shelfFiles * os.Getpagesize()), Mode: 0o700}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(spareDir(dir), 0o700), os.WriteFile(filepath.Join(spareDir(dir), "0"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "first", "x", 0o600)
	if got := grab(t, filepath.Join(Shown(dir), "first")); got >= int64(os.Getpagesize()) {
		t.Errorf("%d bytes were free", got)
	}
}

func TestALeaseOnAFileOfAShelfHoldsUpNobody(t *testing.T) {
	dir := shelf(t)
	put(t, dir, "leased", "x", 0o444)
	file, err := os.Open(filepath.Join(Shown(dir), "leased"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	hosttest.Lease(t, file)
	put(t, dir, "leased", "y", 0o444)
	if err := (Tmpfs{}).Drop(dir, "leased"); err != nil {
		t.Error(err)
	}
	put(t, dir, "leased", "z", 0o444)
}

func TestWhatIsNoFileOfAShelfIsRefused(t *testing.T) {
	dir := shelf(t)
	for _, content := range [][]byte{nil, make([]byte, os.Getpagesize()+1)} {
		if err := (Tmpfs{}).Put(dir, "f", content, 0o600); err == nil {
			t.Errorf("%d bytes were put", len(content))
		}
	}
}
