// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/modestest"
)

// imageWithHook is the directory of an image with a hook in it.
func imageWithHook(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, hook), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheHookComesFromTheImageUnlessOneOfTheHostIsNamed(t *testing.T) {
	tests := map[string]struct {
		options Options
		image   string
		want    string // "" is the one of the image
		err     string
	}{
		"none is named":            {options: Options{Edits: "nvcdi"}, image: "new"},
		"one of the host is named": {options: Options{Edits: "nvcdi", HookPath: "/usr/bin/hook"}, want: "/usr/bin/hook"},
		"the image has none":       {options: Options{Edits: "nvcdi"}, err: "--nvidia-cdi-hook-path"},
		"files need none":          {options: Options{Edits: "files"}, want: "none"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			image, state := t.TempDir(), t.TempDir()
			if tc.image != "" {
				image = imageWithHook(t, tc.image)
			}
			err := tc.options.CarryHook(host.OS{}, image, state)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			carried := filepath.Join(state, "hook", hook)
			if tc.want == "" {
				info, err := os.Stat(carried)
				if err != nil || info.Mode() != 0o755 || tc.options.HookPath != carried {
					t.Errorf("the hook is %s, and there are %v, %v", tc.options.HookPath, info, err)
				}
				return
			}
			if _, err := os.Stat(carried); !errors.Is(err, os.ErrNotExist) || tc.options.HookPath != strings.TrimPrefix(tc.want, "none") {
				t.Errorf("the hook is %q, want %q (%v)", tc.options.HookPath, tc.want, err)
			}
		})
	}
}

// A container may be starting just then: it finds the old hook or the new one, never half of one.
func TestAHookThatIsReplacedIsNeverHalfThere(t *testing.T) {
	state := t.TempDir()
	carry := func(files host.Files, text string) error {
		return (&Options{Edits: "nvcdi"}).CarryHook(files, imageWithHook(t, text), state)
	}
	if err := carry(host.OS{}, "old"); err != nil {
		t.Fatal(err)
	}
	for at := 0; ; at++ {
		crashing := &modestest.Crashing{Under: host.OS{}, At: at}
		err := carry(crashing, "new")
		got, readErr := os.ReadFile(filepath.Join(state, "hook", hook))
		if text := string(got); readErr != nil || text != "old" && text != "new" {
			t.Errorf("stopped at effect %d there is %q (%v)", at, text, readErr)
		}
		if !crashing.Dead() {
			if err != nil || string(got) != "new" {
				t.Errorf("in the end there is %q (%v)", got, err)
			}
			return
		}
	}
}
