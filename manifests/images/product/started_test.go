// SPDX-License-Identifier: Apache-2.0

package product

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// requireComplete looks at every program and library below a directory: all are for one
// architecture, and the libraries that they name are there.
func requireComplete(t *testing.T, root, arch string) {
	t.Helper()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	have, need := map[string]bool{}, map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		have[d.Name()] = true
		f, err := elf.Open(path)
		if err != nil {
			return nil // a text
		}
		defer f.Close()
		if f.Machine != machine {
			t.Errorf("%s is for %v, want %v", path, f.Machine, machine)
		}
		libraries, err := f.ImportedLibraries()
		for _, l := range libraries {
			need[l] = append(need[l], path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for l, by := range need {
		// The driver's own library lies beside the one that stands in for it, in containers of
		// users.
		if !have[l] && !strings.HasSuffix(l, ".so.driver") {
			t.Errorf("the image lacks %s, which %v need", l, by)
		}
	}
}

// inside is a command that runs in a directory as its root, under qemu where it is for another
// architecture. It skips the test where this machine cannot run it.
func inside(t *testing.T, root, arch string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start a program in another root directory")
	}
	if arch == runtime.GOARCH {
		return inRoot(root, args...)
	}
	emulator := map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}[arch]
	path, err := exec.LookPath(emulator)
	if err != nil {
		t.Skipf("programs for %s do not start here: %s is missing (on Debian: apt-get install qemu-user-static)", arch, emulator)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, emulator), data, 0o755); err != nil {
		t.Fatal(err)
	}
	return inRoot(root, slices.Concat([]string{"/" + emulator}, args)...)
}

// inRoot is a command in another root directory, which is a mount point as in a container.
func inRoot(root string, args ...string) *exec.Cmd {
	const enter = `mount --bind "$0" "$0" && exec chroot "$0" "$@"`
	return exec.Command("unshare", slices.Concat([]string{"--mount", "sh", "-c", enter, root}, args)...)
}

func requireStarts(t *testing.T, root, arch, program string) {
	t.Run("starts", func(t *testing.T) {
		out, err := inside(t, root, arch, program, "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "v0.1.0") {
			t.Errorf("%s --version: %v\n%s", program, err, out)
		}
	})
}

// requireInstalls runs what the init container of the device plugin's pod runs.
func requireInstalls(t *testing.T, root, arch string) {
	t.Run("installs the library", func(t *testing.T) {
		out, err := inside(t, root, arch, "/usr/bin/deviceshare-device-plugin", "install-library", "--library-dir=/host").CombinedOutput()
		if err != nil {
			t.Fatalf("install-library: %v\n%s", err, out)
		}
		for _, place := range libraries {
			in := filepath.Join(root, place)
			rel, err := filepath.Rel(filepath.Join(root, "opt/deviceshare"), in)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(root, "host", rel)); err != nil || string(got) != string(want) {
				t.Errorf("%s was not copied (%v)", rel, err)
			}
		}
	})
}

// requireStartsDaemons runs the programs by which the device plugin starts MPS daemons in the
// driver's root.
func requireStartsDaemons(t *testing.T, root, arch string) {
	t.Run("starts programs of the driver's root", func(t *testing.T) {
		if arch != runtime.GOARCH {
			t.Skip("the programs start others, which qemu does not see")
		}
		script := `mkdir -p /driver && mount --rbind /usr /driver && exec chroot /driver /bin/mkdir --version`
		out, err := inside(t, root, arch, "/usr/bin/unshare", "--mount", "/bin/sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
