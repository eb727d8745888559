// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"deviceshare/deviceplugin/host"
)

// bearsLabel asks the kernel for the label of a file.
func bearsLabel(t *testing.T, path string) bool {
	t.Helper()
	text := make([]byte, 256)
	n, err := unix.Lgetxattr(path, "security.selinux", text)
	if err != nil && !errors.Is(err, unix.ENODATA) {
		t.Fatal(err)
	}
	return err == nil && string(text[:n]) == "system_u:object_r:container_file_t:s0"
}

// What a container is given is what its mounts name. All of it bears the label of containers, and
// nothing else does.
func TestAContainerCanUseAllThatItIsGivenAndNothingElse(t *testing.T) {
	w := onTmpfs(t)
	if err := (host.SELinux{}).Label(w.library); err != nil {
		t.Skip(err) // as on a file system that holds no labels
	}
	standIns := filepath.Join(filepath.Dir(w.library), standInDir)
	err := os.Mkdir(standIns, 0o700)
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(standIns, name), []byte("x"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	labels := host.SELinux{}
	w.files, w.space = host.OS{Labels: labels}, host.Tmpfs{Labels: labels}
	given := map[string]bool{}
	for _, c := range []string{"uid-1", "uid-2"} {
		claim := share("owner")
		claim.Container, claim.Interception.StandIn = c, true
		for range 2 { // again, as when a container starts anew
			in, err := w.Write(context.Background(), claim)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range in.Mounts {
				given[m.Host] = true
			}
			for _, s := range in.StandIns {
				given[s.Host] = true
			}
		}
	}
	seen := 0
	err = filepath.WalkDir(w.root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(path, filepath.Join(w.neighboursDir(), "spare")) {
			return err // a spare file may have been shown before
		}
		want := given[path] || given[filepath.Dir(path)] || path == w.neighboursDir()
		if want {
			seen++
		}
		if got := bearsLabel(t, path); got != want {
			t.Errorf("%s bears the label: %v, want %v", path, got, want)
		}
		return nil
	})
	if err != nil || seen < 2*6 {
		t.Errorf("%d files were given (%v)", seen, err)
	}
}
