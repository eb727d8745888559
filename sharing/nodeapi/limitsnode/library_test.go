// SPDX-License-Identifier: Apache-2.0

package limitsnode

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deviceshare/sharing/nodeapi/hostnode"
	"deviceshare/sharing/nodeapi/nodeapitest"
)

// imageWith makes the directory of an image whose libraries hold this text and their names.
func imageWith(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range libraryFiles() {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755),
			os.WriteFile(filepath.Join(dir, name), []byte(text+" "+name), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// requireInstalled reports what differs from the libraries with this text, and what else is there.
func requireInstalled(t *testing.T, dir, text string) {
	t.Helper()
	count := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			count++
		}
		return err
	})
	if err != nil || count != len(libraryFiles()) {
		t.Errorf("%d files are installed (%v), want %d", count, err, len(libraryFiles()))
	}
	for _, name := range libraryFiles() {
		have, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(have) != text+" "+name {
			t.Errorf("%s holds %q (%v), want that of %q", name, have, err, text)
		}
	}
}

func TestTheLibraryIsInstalledAndUpdated(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, host string){
		"on a new host":          func(*testing.T, string) {},
		"where it was not there": func(t *testing.T, host string) { _ = os.RemoveAll(host) },
		"over another version": func(t *testing.T, host string) {
			if err := InstallLibrary(hostnode.OS{}, imageWith(t, "old"), host); err != nil {
				t.Fatal(err)
			}
		},
		"over the same version": func(t *testing.T, host string) {
			if err := InstallLibrary(hostnode.OS{}, imageWith(t, "new"), host); err != nil {
				t.Fatal(err)
			}
		},
		"after a killed install": func(t *testing.T, host string) {
			if err := os.WriteFile(filepath.Join(host, hostnode.Unfinished("libvgpu.so")+"123"), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			host := t.TempDir()
			make(t, host)
			if err := InstallLibrary(hostnode.OS{}, imageWith(t, "new"), host); err != nil {
				t.Fatal(err)
			}
			requireInstalled(t, host, "new")
			if info, err := os.Stat(filepath.Join(host, "libvgpu.so")); err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("the library's mode is %v (%v): containers of any user load it", info.Mode(), err)
			}
		})
	}
}

func TestAProcessThatHasTheOldLibraryKeepsIt(t *testing.T) {
	host := t.TempDir()
	if err := InstallLibrary(hostnode.OS{}, imageWith(t, "old"), host); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(host, "libvgpu.so"))
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(filepath.Join(host, "libvgpu.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := InstallLibrary(hostnode.OS{}, imageWith(t, "new"), host); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(filepath.Join(host, "libvgpu.so"))
	if err != nil || os.SameFile(before, after) {
		t.Errorf("the new library is the old file with new content (%v)", err)
	}
	old := make([]byte, 3)
	if _, err := open.Read(old); err != nil || string(old) != "old" {
		t.Errorf("who had the old library sees %q (%v)", old, err)
	}
}

func TestABrokenImageChangesNothing(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"is missing": os.Remove,
		"is empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		for _, file := range libraryFiles() {
			t.Run(file+" "+name, func(t *testing.T) {
				host, image := t.TempDir(), imageWith(t, "new")
				if err := errors.Join(InstallLibrary(hostnode.OS{}, imageWith(t, "old"), host), spoil(filepath.Join(image, file))); err != nil {
					t.Fatal(err)
				}
				if err := InstallLibrary(hostnode.OS{}, image, host); err == nil || !strings.Contains(err.Error(), file) {
					t.Errorf("got %v, want an error that names %s", err, file)
				}
				requireInstalled(t, host, "old")
			})
		}
	}
}

// lying is a disk that loses what is written.
type lying struct{ hostnode.OS }

func (lying) Write(path string, content []byte, mode fs.FileMode) error {
	return hostnode.OS{}.Write(path, content[:len(content)-1], mode)
}

func TestACopyThatDiffersIsAnError(t *testing.T) {
	err := InstallLibrary(lying{}, imageWith(t, "new"), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "does not hold what was written") {
		t.Errorf("got %v", err)
	}
}

func TestAnInstallThatIsKilledAnywhereLeavesWholeFilesAndCanBeRepeated(t *testing.T) {
	for at := 0; ; at++ {
		for _, late := range []bool{false, true} {
			host, image := t.TempDir(), imageWith(t, "new")
			if err := InstallLibrary(hostnode.OS{}, imageWith(t, "old"), host); err != nil {
				t.Fatal(err)
			}
			crashing := &nodeapitest.Crashing{Under: hostnode.OS{}, At: at, Late: late}
			err := InstallLibrary(crashing, image, host)
			if !crashing.Dead() {
				if err != nil || at == 0 {
					t.Fatalf("after %d effects: %v", at, err)
				}
				return
			}
			for _, name := range libraryFiles() {
				have, err := os.ReadFile(filepath.Join(host, name))
				if text := string(have); err != nil || text != "old "+name && text != "new "+name {
					t.Errorf("killed at effect %d: %s holds %q (%v)", at, name, have, err)
				}
			}
			if err := InstallLibrary(hostnode.OS{}, image, host); err != nil {
				t.Fatal(err)
			}
			requireInstalled(t, host, "new")
		}
	}
}
