// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// containerdWith is how containerd says what it starts containers with.
func containerdWith(byDefault, program string) string {
	return `{"containerd":{"defaultRuntimeName":"` + byDefault + `","runtimes":{
		"runc":{"runtimeType":"io.containerd.runc.v2","options":{"BinaryName":"/usr/sbin/runc","Root":""}},
		"kata":{"runtimeType":"io.containerd.kata.v2","options":null},
		"nvidia":{"runtimeType":"io.containerd.runc.v2","options":{"BinaryName":"` + program + `"}}}},"enableCDI":true}`
}

const (
	inEtc    = "/etc/nvidia-container-runtime/config.toml"
	ofNVIDIA = "/usr/bin/nvidia-container-runtime"
	// As the GPU operator installs it.
	ofOperator = "/usr/local/nvidia/toolkit/nvidia-container-runtime.cdi"
	beside     = "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"

	accepting = "disable-require = false\n#" + acceptEnvironment + " = false\n[nvidia-container-runtime]\nmode = \"auto\"\n"
	refusing  = acceptEnvironment + " = false\n" + accepting
)

func TestANodeSaysWhereContainersGetDevicesThatNobodyAskedFor(t *testing.T) {
	crio := func(byDefault string) string {
		return `{"crio":{"DefaultRuntime":"` + byDefault + `","Runtimes":{"crun":{"RuntimePath":"/usr/bin/crun"},
			"nvidia":{"RuntimePath":"` + ofNVIDIA + `"}}},"sandboxImage":"pause"}`
	}
	for name, c := range map[string]struct {
		settings string
		files    map[string]string
		why      []string // none: no container does
		isSilent bool
		isWrong  bool
	}{
		"the default, with its own defaults": {settings: containerdWith("nvidia", ofNVIDIA),
			why: []string{`default runtime of the node, "nvidia"`, "NVIDIA_VISIBLE_DEVICES=all", acceptEnvironment + " = false in " + inEtc}},
		"the default, with settings that say nothing": {settings: containerdWith("nvidia", ofNVIDIA), files: map[string]string{inEtc: accepting},
			why: []string{`default runtime of the node, "nvidia"`}},
		"the default, mended":       {settings: containerdWith("nvidia", ofNVIDIA), files: map[string]string{inEtc: refusing}},
		"by a RuntimeClass":         {settings: containerdWith("runc", ofNVIDIA), why: []string{`the runtime "nvidia"`, "RuntimeClass"}},
		"by a RuntimeClass, mended": {settings: containerdWith("runc", ofNVIDIA), files: map[string]string{inEtc: refusing}},
		"of the operator": {settings: containerdWith("runc", ofOperator), files: map[string]string{inEtc: refusing, beside: accepting},
			why: []string{acceptEnvironment + " = false in " + beside}},
		"of the operator, mended": {settings: containerdWith("nvidia", ofOperator), files: map[string]string{inEtc: accepting, beside: refusing}},
		"settings that are no TOML": {settings: containerdWith("nvidia", ofNVIDIA), files: map[string]string{inEtc: refusing + "]"},
			why: []string{`it is not known whether NVIDIA's runtime "nvidia"`, "read " + inEtc}},
		"a setting of another type": {settings: containerdWith("nvidia", ofNVIDIA), files: map[string]string{inEtc: acceptEnvironment + ` = "false"`},
			why: []string{"want true or false, not false"}},
		"another program of that name":   {settings: containerdWith("nvidia", "/usr/bin/runc")},
		"CRI-O's default":                {settings: crio("nvidia"), why: []string{`default runtime of the node, "nvidia"`}},
		"CRI-O's, by a RuntimeClass":     {settings: crio("crun"), why: []string{`the runtime "nvidia"`}},
		"an old CRI-O":                   {settings: `{"sandboxImage":"pause"}`, isSilent: true},
		"nothing is said":                {isSilent: true},
		"what is said is no JSON":        {settings: `{"containerd":`, isWrong: true},
		"what is said is something else": {settings: `{"containerd":[]}`, isWrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range c.files {
				if err := errors.Join(os.MkdirAll(filepath.Dir(root+file), 0o700), os.WriteFile(root+file, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			(&runtime{info: map[string]string{"config": c.settings}}).serve(t, filepath.Join(root, "s"))
			why, does, err := Runtime{Root: root, Sockets: []string{"/s"}, Patience: time.Minute}.GivesUnasked(context.Background())
			isSilent := errors.Is(err, ErrRuntimeSilent)
			if does != (c.why != nil) || isSilent != c.isSilent || (err != nil && !isSilent) != c.isWrong {
				t.Fatalf("got %q, %v, %v", why, does, err)
			}
			for _, part := range c.why {
				if !strings.Contains(why, part) {
					t.Errorf("%q does not say %q", why, part)
				}
			}
		})
	}
}

func TestSettingsOfNVIDIAsRuntimeAreReadAsTOML(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                    true,
		acceptEnvironment + "=true":           true,
		acceptEnvironment + "=false":          false,
		`"` + acceptEnvironment + `"= false`:  false,
		"# " + acceptEnvironment + " = false": true,
		"[nvidia-container-cli]\n" + acceptEnvironment + " = false":                          true, // another setting
		"[nvidia-container-cli]\nroot = \"/run/nvidia/driver\"\n" + acceptEnvironment + "=1": true,
		"x = '''\n" + acceptEnvironment + " = false\n'''":                                    true, // within a text
	} {
		if got, err := acceptsEnvironment([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{acceptEnvironment, acceptEnvironment + " = false\n" + acceptEnvironment + " = true", acceptEnvironment + " = no", "[" + acceptEnvironment + "]"} {
		if accepts, err := acceptsEnvironment([]byte(text)); err == nil || !accepts {
			t.Errorf("%q: got %v, %v, want a mistake and the worst", text, accepts, err)
		}
	}
}

// FuzzAcceptsEnvironment: whatever stands there, nobody is told that the environment does not count
// unless the file says false, and a comment before it changes nothing.
func FuzzAcceptsEnvironment(f *testing.F) {
	for _, text := range []string{accepting, refusing, refusing + "]", `"accept\u002dnvidia" = false`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		accepts, err := acceptsEnvironment(text)
		if !accepts && (err != nil || !bytes.Contains(text, []byte("false"))) {
			t.Errorf("%q: not accepted, %v", text, err)
		}
		again, errAgain := acceptsEnvironment(append([]byte("# NVIDIA\n"), text...))
		if again != accepts || (errAgain == nil) != (err == nil) {
			t.Errorf("%q behind a comment: %v, %v, without it %v, %v", text, again, errAgain, accepts, err)
		}
	})
}

// FuzzReadHandlers: whatever a runtime says, the default ones come first, and there is an error or
// something to look at.
func FuzzReadHandlers(f *testing.F) {
	for _, text := range []string{containerdWith("nvidia", ofNVIDIA), `{"crio":{"DefaultRuntime":"a","Runtimes":{"a":null,"b":{}}}}`, `null`, ``} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readHandlers(text)
		if (err == nil) != (len(all) > 0) {
			t.Fatalf("%d of them, %v", len(all), err)
		}
		if !slices.IsSortedFunc(all, func(a, b handler) int {
			if a.isDefault == b.isDefault {
				return strings.Compare(a.name, b.name)
			}
			if a.isDefault {
				return -1
			}
			return 1
		}) {
			t.Errorf("not in order: %v", all)
		}
	})
}
