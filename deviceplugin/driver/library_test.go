// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// library writes a file that looks like a library of this machine, or of another one.
func library(t *testing.T, path string, change func(header []byte)) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	data := make([]byte, 64) // the header alone says what it is
	if _, err := io.ReadFull(file, data); err != nil {
		t.Fatal(err)
	}
	data[16] = byte(elf.ET_DYN)
	for _, at := range []int{40, 60, 62, 56} { // without sections and segments
		data[at], data[at+1] = 0, 0
	}
	for at := 40; at < 48; at++ {
		data[at] = 0
	}
	if change != nil {
		change(data)
	}
	write(t, path, data)
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// for32 makes a library one of 32 bits, mips one of another machine.
func for32(header []byte) {
	header[4] = byte(elf.ELFCLASS32)
	clear(header[24:52]) // its fields are elsewhere
}
func mips(header []byte) { header[18], header[19] = byte(elf.EM_MIPS), 0 }

func TestTheLibraryIsFoundBelowTheDriversRoot(t *testing.T) {
	const file = "libnvidia-ml.so.580.95.05"
	for name, c := range map[string]struct {
		system func(t *testing.T, root string)
		want   string // below the root
	}{
		"Debian": {func(t *testing.T, root string) {
			library(t, root+"/usr/lib/x86_64-linux-gnu/nvidia/current/"+file, nil)
			link(t, file, root+"/usr/lib/x86_64-linux-gnu/nvidia/current/"+libraryName)
			link(t, "/etc/alternatives/nvidia--libnvidia-ml.so.1-x86_64-linux-gnu", root+"/usr/lib/x86_64-linux-gnu/"+libraryName)
			link(t, "/usr/lib/x86_64-linux-gnu/nvidia/current/"+libraryName, root+"/etc/alternatives/nvidia--libnvidia-ml.so.1-x86_64-linux-gnu")
		}, "/usr/lib/x86_64-linux-gnu/nvidia/current/" + file},
		"Fedora, with the libraries of 32 bits": {func(t *testing.T, root string) {
			library(t, root+"/usr/lib/"+libraryName, for32)
			library(t, root+"/usr/lib64/"+file, nil)
			link(t, file, root+"/usr/lib64/"+libraryName)
		}, "/usr/lib64/" + file},
		"a 64-bit system that begins with a library of 32": {func(t *testing.T, root string) {
			library(t, root+"/usr/lib64/"+libraryName, for32)
			library(t, root+"/lib64/"+libraryName, nil)
		}, "/lib64/" + libraryName},
		"NixOS, whose links are absolute": {func(t *testing.T, root string) {
			library(t, root+"/nix/store/abc-nvidia/lib/"+file, nil)
			link(t, "/nix/store/abc-nvidia", root+"/run/opengl-driver")
			link(t, file, root+"/nix/store/abc-nvidia/lib/"+libraryName)
		}, "/nix/store/abc-nvidia/lib/" + file},
		"Google's image": {func(t *testing.T, root string) {
			library(t, root+"/home/kubernetes/bin/nvidia/lib64/"+libraryName, nil)
		}, "/home/kubernetes/bin/nvidia/lib64/" + libraryName},
		"a link that climbs out stays inside": {func(t *testing.T, root string) {
			link(t, "../../../../../../../../secret", root+"/usr/lib64/"+libraryName)
			library(t, root+"/secret", nil)
			library(t, filepath.Dir(root)+"/secret", nil)
		}, "/secret"},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			c.system(t, root)
			got, err := LibraryLocation{Root: root}.findLibrary()
			if err != nil || got != root+c.want {
				t.Errorf("got %s, %v, want %s", got, err, root+c.want)
			}
		})
	}
}

func TestWhereThereIsNoLibraryTheErrorSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		system func(t *testing.T, root string)
		want   []string
	}{
		"no driver":              {func(*testing.T, string) {}, []string{"usr/lib64", "--nvml-library"}},
		"32 bits only":           {func(t *testing.T, root string) { library(t, root+"/usr/lib64/"+libraryName, for32) }, []string{"another machine", "ELFCLASS32"}},
		"another machine's only": {func(t *testing.T, root string) { library(t, root+"/usr/lib64/"+libraryName, mips) }, []string{"EM_MIPS"}},
		"a copy that was cut off": {func(t *testing.T, root string) { write(t, root+"/usr/lib64/"+libraryName, []byte("\x7fELF")) },
			[]string{"it is no library"}},
		"an empty file": {func(t *testing.T, root string) { write(t, root+"/usr/lib64/"+libraryName, nil) }, []string{"it is no library"}},
		"links in a circle": {func(t *testing.T, root string) { link(t, libraryName, root+"/usr/lib64/"+libraryName) },
			[]string{libraryName}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			c.system(t, root)
			got, err := LibraryLocation{Root: root}.findLibrary()
			if !errors.Is(err, errNoLibrary) || got != "" {
				t.Fatalf("got %s, %v", got, err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}

func TestAPathThatIsGivenIsTaken(t *testing.T) {
	if got, err := (LibraryLocation{Path: "/a/b.so", Root: "/none"}).findLibrary(); got != "/a/b.so" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := (LibraryLocation{}).findLibrary(); got != libraryName || err != nil {
		t.Errorf("got %s, %v: the dynamic linker knows its own directories", got, err)
	}
}

// Whatever a driver's root has in it, nothing outside is found, and what is found is a library.
func TestNothingOutsideTheRootIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		base := t.TempDir()
		root := filepath.Join(base, "root")
		library(t, filepath.Join(base, libraryName), nil)
		for range 1 + r.IntN(6) {
			dir := libraryDirectories()[r.IntN(len(libraryDirectories()))]
			path := filepath.Join(root, dir, libraryName)
			if _, err := os.Lstat(path); err == nil {
				continue
			}
			switch r.IntN(5) {
			case 0:
				library(t, path, nil)
			case 1:
				library(t, path, for32)
			case 2:
				link(t, strings.Repeat("../", r.IntN(12))+libraryName, path)
			case 3:
				link(t, filepath.Join(base, libraryName), path)
			case 4:
				link(t, fmt.Sprintf("/%s/%s", libraryDirectories()[r.IntN(len(libraryDirectories()))], libraryName), path)
			}
		}
		got, err := LibraryLocation{Root: root}.findLibrary()
		if err != nil {
			continue
		}
		if !strings.HasPrefix(got, root+"/") {
			t.Fatalf("round %d found %s outside of %s", n, got, root)
		}
		if info, err := os.Lstat(got); err != nil || !info.Mode().IsRegular() {
			t.Fatalf("round %d found %s, which is no file: %v", n, got, err)
		}
	}
}
