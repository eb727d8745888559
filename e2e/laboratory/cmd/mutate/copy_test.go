// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const original = `package first

import "deviceshare/pure/first/below"

func sign(n int) int {
	switch {
	case n < 0, below.Zero(n):
		return -1
	}
	switch n {
	case 0:
		return 0
	}
	return 1
}
`

func TestConditionsOfCasesAreCoveredInTheCopy(t *testing.T) {
	name, src, err := rewrite("pure/first/sign.go", []byte(original), "pure/first")
	if err != nil || name != "pure/apart_first/sign.go" {
		t.Fatalf("%s, %v", name, err)
	}
	want := strings.NewReplacer(
		`"deviceshare/pure/first/below"`, `"mutated/pure/first/below"`,
		"case n < 0, below.Zero(n):", "case func() bool { return n < 0 }(), func() bool { return below.Zero(n) }():",
	).Replace(original)
	if string(src) != want {
		t.Errorf("got\n%s\nwant\n%s", src, want)
	}
}

func TestOthersImportThePackageFromItsNewPlace(t *testing.T) {
	const src = "package other\n\nimport (\n\t\"strings\"\n\t\"deviceshare/pure/first\"\n)\n"
	for name, dir := range map[string]string{"pure/other/o.go": "pure/first", "pure/first/below/b.go": "pure/first"} {
		got, text, err := rewrite(name, []byte(src), dir)
		if err != nil || got != name || !strings.Contains(string(text), `"mutated/pure/apart_first"`) || !strings.Contains(string(text), `"strings"`) {
			t.Errorf("%s becomes %s, %v:\n%s", name, got, err, text)
		}
	}
}

func TestAPackageThatGremlinsWouldNotFindIsRefused(t *testing.T) {
	if _, _, err := rewrite("pure/first/x.go", []byte("package second\n"), "pure/first"); err == nil || !strings.Contains(err.Error(), "package second") {
		t.Errorf("%v", err)
	}
}

// The copy must compile, and its tests must pass as they are.
func TestTheCopyOfAPackageIsTested(t *testing.T) {
	work := t.TempDir()
	subject, err := copyModule(filepath.Join("..", "..", "..", ".."), work, "sharing/policy")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "test", "./"+subject)
	c.Dir, c.Env = work, append(os.Environ(), "GOFLAGS=-vet=off")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "ok") {
		t.Errorf("%v\n%s", err, out)
	}
}
