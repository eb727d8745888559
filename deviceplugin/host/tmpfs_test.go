// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"deviceshare/sharing"
)

// limited is a directory with a tmpfs of 1 MiB.
func limited(t *testing.T, b Bound) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shm")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("mounts can be made by root only")
	}
	t.Cleanup(func() {
		if err := (Tmpfs{}).Release(dir); err != nil {
			t.Error(err)
		}
	})
	if err := (Tmpfs{}).Limit(dir, b); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestADirectoryHoldsNoMoreThanItsLimit(t *testing.T) {
	dir := limited(t, Bound{Size: sharing.MiB, Mode: 0o777 | os.ModeSticky})
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("the directory is %v, %v", info.Mode(), err)
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, 2*sharing.MiB), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("more than fits is answered with %v", err)
	}
	many := 0
	for ; many < 1000 && os.WriteFile(filepath.Join(dir, strings.Repeat("x", many%200+1)+string(rune('a'+many/200))), nil, 0o600) == nil; many++ {
	}
	if many >= 1000 {
		t.Error("there is no end of empty files")
	}
}

func TestALimitIsKeptWithWhatIsThereAndCanGrow(t *testing.T) {
	dir := limited(t, Bound{Size: sharing.MiB, Mode: 0o700})
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, size := range []sharing.Bytes{sharing.MiB, 2 * sharing.MiB} {
		if err := (Tmpfs{}).Limit(dir, Bound{Size: size, Mode: 0o700}); err != nil {
			t.Fatal(err)
		}
		var stat syscall.Statfs_t
		if err := syscall.Statfs(dir, &stat); err != nil || int64(stat.Blocks)*stat.Bsize != int64(size) {
			t.Errorf("it has %d blocks of %d bytes, want %d bytes", stat.Blocks, stat.Bsize, size)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Count(string(mounts), " "+dir+" ") != 1 {
		t.Errorf("it is not mounted once (%v)", err)
	}
	if err := (Tmpfs{}).Release(dir); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("afterwards it holds %v, %v", names, err)
	}
	for _, gone := range []string{dir, dir + ".gone"} {
		if err := (Tmpfs{}).Release(gone); err != nil {
			t.Error(err)
		}
	}
}

func TestALinkThatAContainerMadeLeadsTheDaemonNowhere(t *testing.T) {
	dir := limited(t, Bound{Size: sharing.MiB, Mode: 0o755, NoLinks: true})
	target, link := filepath.Join(t.TempDir(), "passwd"), filepath.Join(dir, "control.pid")
	if err := errors.Join(os.WriteFile(target, []byte("root"), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	var stat syscall.Statfs_t
	const noFollow = 0x2000 // ST_NOSYMFOLLOW
	if err := syscall.Statfs(dir, &stat); err != nil || stat.Flags&noFollow == 0 {
		t.Skip("this kernel does not know such mounts")
	}
	if err := os.WriteFile(link, []byte("1234"), 0o600); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("writing through it is answered with %v", err)
	}
}

func TestAMountIsLookedForByTheNumberOfItsFileSystem(t *testing.T) {
	text := "22 27 0:21 / /proc rw - proc proc rw\n30 27 0:4096 / /run rw shared:7 - tmpfs tmpfs rw\n"
	for dev, want := range map[uint64]bool{0x15: true, 0x1000_000: true, 0x16: false, 0x115: false} {
		if got, err := isMounted(strings.NewReader(text), dev); got != want || err != nil {
			t.Errorf("file system %#x is seen: %v, %v", dev, got, err)
		}
	}
	if _, err := isMounted(strings.NewReader("x\n"), 0x15); err == nil {
		t.Error("a text that is no list of mounts is taken for one")
	}
}
