// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The descriptions are written here and read by a program of another module.
func TestTheImageBuilderUnderstandsTheDescriptions(t *testing.T) {
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	o, l := Options{Progress: func(line string) { t.Log(line) }}, layout{repo: repo}
	if err := build(t.Context(), o, l, imageBuilder(l)); err != nil {
		t.Fatal(err)
	}
	client, err := clientImage(l)
	if err != nil {
		t.Fatal(err)
	}
	packed := layout{repo: t.TempDir()} // where nothing disturbs a sandbox
	if err := os.MkdirAll(packed.bin(""), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(l.bin("images"), packed.bin("images")); err != nil {
		t.Fatal(err)
	}
	if err := pack(t.Context(), o, packed, "cudaclient", client); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tar", "-xOf", packed.image("cudaclient"), "index.json").Output()
	if err != nil || !strings.Contains(string(out), `"`+runtimeName(ImageCUDAClient)+`"`) {
		t.Errorf("the archive's index is %s (%v)", out, err)
	}
}

func TestProgramIsCollectedWithItsLoaderAndLibraries(t *testing.T) {
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Skip("no /bin/sh on this machine")
	}
	c := newCollector()
	if err := c.add("usr/bin/sh", sh); err != nil {
		t.Fatal(err)
	}
	var loader, libc bool
	for _, f := range c.files() {
		base := filepath.Base(f.Path)
		loader = loader || (len(base) > 3 && base[:3] == "ld-")
		libc = libc || base == "libc.so.6"
	}
	if !loader || !libc {
		t.Errorf("no loader (%v) or no libc (%v) in %v", loader, libc, c.sources)
	}
	if err := c.library("libnosuchthing.so.9"); err == nil {
		t.Error("a library that does not exist was found")
	}
}

func TestHostPathsMoveBelowUsr(t *testing.T) {
	for in, want := range map[string]string{
		"/lib64/ld-linux-x86-64.so.2":         "usr/lib64/ld-linux-x86-64.so.2",
		"/lib/x86_64-linux-gnu/libc.so.6":     "usr/lib/x86_64-linux-gnu/libc.so.6",
		"/usr/lib/x86_64-linux-gnu/libm.so.6": "usr/lib/x86_64-linux-gnu/libm.so.6",
		"/usr/lib/../lib64/libgcc_s.so.1":     "usr/lib64/libgcc_s.so.1",
	} {
		if got := imagePath(in); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

func TestLibraryPathIsSetOnlyOnHostsThatAreNotLaidOutLikeDebian(t *testing.T) {
	debian := &collector{dirs: map[string]bool{"/usr/lib/x86_64-linux-gnu": true}}
	if got := debian.unusualDirs(); got != nil {
		t.Errorf("on Debian: %v, want none", got)
	}
	fedora := &collector{dirs: map[string]bool{"/usr/lib64": true}}
	if got := fedora.unusualDirs(); !slices.Equal(got, []string{"/usr/lib64", "/usr/lib/x86_64-linux-gnu"}) {
		t.Errorf("elsewhere: %v, want the host's directory and the driver's", got)
	}
}
