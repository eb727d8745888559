// SPDX-License-Identifier: Apache-2.0

package product

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestArchitecturesAreNamedOnceAndKnown(t *testing.T) {
	for list, want := range map[string]string{
		"amd64": "amd64", "arm64,amd64": "arm64 amd64",
		"": "architecture \"\"", "amd64,": "architecture \"\"", "riscv64": "want amd64 or arm64", "amd64,amd64": "architecture \"amd64\"",
	} {
		platforms, err := ParsePlatforms(list)
		var got []string
		for _, p := range platforms {
			got = append(got, p.Arch)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if !strings.Contains(strings.Join(got, " "), want) {
			t.Errorf("%q: %v, want %s", list, got, want)
		}
	}
}

// foreign is a platform for which no machine has a compiler.
func foreign() Platform { return Platform{"arm64", "no-such-gcc", []string{"no-such-package"}} }

func TestAPlatformWithoutACompilerIsLeftOutButNotOfARelease(t *testing.T) {
	t.Setenv("PATH", toolsWithoutApt(t))
	native := Platform{Arch: runtime.GOARCH}
	for name, tt := range map[string]struct {
		b    Builder
		want string // in the error or in a line of progress
	}{
		"the second":             {Builder{Platforms: []Platform{native, foreign()}}, "leaving arm64 out: no C compiler for arm64: install no-such-gcc"},
		"the first":              {Builder{Platforms: []Platform{foreign()}}, "no C compiler for arm64"},
		"the second, in release": {Builder{Platforms: []Platform{native, foreign()}, IsRelease: true}, "no C compiler for arm64"},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			tt.b.Repo, tt.b.Work, tt.b.Version = repoOfStubs(t), t.TempDir(), "v0.1.0"
			tt.b.Progress = func(line string) { lines = append(lines, line) }
			specs, err := tt.b.Build(context.Background())
			if (err == nil) != (name == "the second") {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				lines = append(lines, err.Error())
			} else if len(specs["webhook"]) != 1 || specs["webhook"][0].Architecture != runtime.GOARCH {
				t.Errorf("the webhook is built as %+v", specs["webhook"])
			}
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, tt.want) }) {
				t.Errorf("nothing says %q: %q", tt.want, lines)
			}
		})
	}
}

// toolsWithoutApt is a directory of programs that do nothing, but not of apt-get.
func toolsWithoutApt(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, tool := range []string{"go", "make", "gcc", "dpkg-deb"} {
		if err := os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// repoOfStubs is a working copy whose base is an empty directory.
func repoOfStubs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"hami-core", "manifests/images"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "manifests/images/base.sh"), []byte("#!/bin/sh\n/bin/mkdir -p \"$2\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
