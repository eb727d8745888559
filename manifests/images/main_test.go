// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runRelease runs the command on a working copy and returns its error.
func runRelease(t *testing.T, repo string, args ...string) error {
	t.Helper()
	c := newRelease()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetOut(io.Discard)
	c.SetArgs(append([]string{"--version=v9.8.7", "--repo=" + repo}, args...))
	return c.ExecuteContext(t.Context())
}

// recordPrograms puts the tools of a build into the path; they only note that they were called.
func recordPrograms(t *testing.T) (called func() bool) {
	t.Helper()
	dir := t.TempDir()
	note := filepath.Join(dir, "note")
	for _, tool := range []string{"go", "make", "gcc", "dpkg-deb", "apt-get"} {
		if err := os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/sh\n: > "+note+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() bool {
		_, err := os.Stat(note)
		return err == nil
	}
}

func workingCopy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	commit := `git init -q && echo text > file && git add file && git -c user.name=a -c user.email=a@b.c commit -q -m text`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", commit)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// A wrong key is found before the build, which takes minutes, and names the file. A variable that
// was meant to name the key, and is empty, leaves nothing unsigned.
func TestAReleaseIsNotBuiltWithoutTheKeyThatShallSignIt(t *testing.T) {
	repo, called := workingCopy(t), recordPrograms(t)
	public := filepath.Join(t.TempDir(), "release.pub")
	if err := os.WriteFile(public, []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{public: public + ": it is a PUBLIC KEY", "/no/such/key": "/no/such/key: no such file", "": "--sign-key: read the signing key"} {
		if err := runRelease(t, repo, "--sign-key="+key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("key %q: %v, want %s", key, err, want)
		}
	}
	if err := runRelease(t, repo, "--fips=latest"); err == nil || !strings.Contains(err.Error(), "want one such as v1.0.0") {
		t.Errorf("a FIPS module whose version is none: %v", err)
	}
	if entries, err := os.ReadDir(repo); err != nil || len(entries) != 2 || called() { // .git and file
		t.Errorf("something was built: %v (%v)", entries, err)
	}
	// Without one of these mistakes it goes on to build, for which this working copy has no script.
	if err := runRelease(t, repo); err == nil || !strings.Contains(err.Error(), "base.sh") {
		t.Errorf("it builds nothing at all: %v", err)
	}
}

func TestTheSourceIsDirtyWithAnyChangeOrUnknownFile(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	const private = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n"
	if err := os.WriteFile(key, []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"": false, "file": true, "new.go": true} {
		repo := workingCopy(t)
		if name != "" {
			if err := os.WriteFile(filepath.Join(repo, name), []byte("package other"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := newSeal(t.Context(), repo, key)
		if err != nil {
			t.Fatal(err)
		}
		if s.Source.IsDirty != want || len(s.Source.Commit) != 40 {
			t.Errorf("after a change of %q the source is %+v", name, s.Source)
		}
	}
	if _, err := newSeal(t.Context(), t.TempDir(), key); err == nil || !strings.Contains(err.Error(), "read the commit for the provenance") {
		t.Errorf("outside of git: %v", err)
	}
}
