// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The driver's system has a C library that a program of this one must not meet: the suites on an
// installed cluster show that the product's programs do not.
func TestNoProgramOfThisSystemStartsWithTheDriversCLibrary(t *testing.T) {
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Skip("no /bin/sh on this machine")
	}
	c := newCollector()
	if err := c.add("usr/bin/sh", sh); err != nil {
		t.Fatal(err)
	}
	l, root := layout{state: t.TempDir()}, t.TempDir()
	f, err := foreignLibrary(l, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := unpack(root, f); err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(root, "usr/lib64/libc.so.6")
	if text, err := os.ReadFile(library); err != nil || !strings.HasPrefix(string(text), "\x7fELF") {
		t.Fatalf("it is no library: %v", err)
	}
	start := exec.Command(sh, "-c", "echo it starts")
	start.Env = []string{"LD_LIBRARY_PATH=" + filepath.Dir(library)}
	if out, err := start.CombinedOutput(); err == nil || !strings.Contains(string(out), "GLIBC_") {
		t.Errorf("a program that meets it: %v, %q", err, out)
	}
}
