// SPDX-License-Identifier: Apache-2.0

package product

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"deviceshare/manifests/images/image"
)

// An image is written anew when anything changes that is in it, and not otherwise.
func TestAnImageIsWrittenAnewWhenItChanges(t *testing.T) {
	base := t.TempDir()
	program, dir := filepath.Join(base, "program"), filepath.Join(base, "scheduler")
	put := func(text string, at time.Time) {
		t.Helper()
		err := os.WriteFile(program, []byte(text), 0o755)
		if err == nil {
			err = os.Chtimes(program, at, at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	spec := image.Spec{Name: "docker.io/deviceshare/scheduler:v1", Architecture: "amd64", Labels: map[string]string{"revision": "a"},
		Files: []image.File{{Path: "program", Source: program, Mode: 0o755}}}
	made := func() (Written, os.FileInfo) {
		t.Helper()
		w, err := writeLayouts(Products()[0], dir, []image.Spec{spec})
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return w, info
	}
	begin := time.Now().Add(-time.Hour)
	put("one", begin)
	first, firstDir := made()
	if first.Sizes["amd64"] == 0 {
		t.Error("it is said to have nothing in it")
	}
	put("one", begin.Add(time.Minute)) // touched, as go build does
	if again, againDir := made(); again.Digest != first.Digest || again.Sizes["amd64"] != first.Sizes["amd64"] || !os.SameFile(firstDir, againDir) {
		t.Errorf("without a change it was written anew, or is told differently: %v, %v", again, first)
	}
	for what, change := range map[string]func(){
		"a program of the same size and time": func() { put("two", begin.Add(time.Minute)) },
		"a label":                             func() { spec.Labels["revision"] = "b" },
		"a file more":                         func() { spec.Files = append(spec.Files, image.File{Path: "note", Text: "new"}) },
		"a layout that is broken": func() {
			if err := os.Remove(filepath.Join(dir, "index.json")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		before, beforeDir := made()
		change()
		after, afterDir := made()
		if os.SameFile(beforeDir, afterDir) {
			t.Errorf("after %s it was not written anew", what)
		}
		if broken := what == "a layout that is broken"; (after.Digest == before.Digest) != broken {
			t.Errorf("after %s its digest is %s, before %s", what, after.Digest, before.Digest)
		}
	}
}
