// SPDX-License-Identifier: Apache-2.0

package product

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// requireModule requires what `go version -m` says of the FIPS 140-3 module of a program: with an
// empty version, that it has none and does not run in FIPS mode.
func requireModule(t *testing.T, program, fips string) {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	module, usual := settings["GOFIPS140"], strings.Contains(settings["DefaultGODEBUG"], "fips140=on")
	if (fips == "") != (module == "") || !strings.HasPrefix(module, fips) || usual != (fips != "") {
		t.Errorf("%s: the module is %q, want %q; it is used unless told otherwise: %v", program, module, fips, usual)
	}
}

// Whatever the builder has in the environment, the ordinary programs have no module, and those of
// the FIPS images have the one that was asked for.
func TestProgramsHaveTheFIPSModuleThatWasAskedFor(t *testing.T) {
	t.Setenv("GOFIPS140", "latest")
	repo, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	b := Builder{Repo: repo, Work: t.TempDir(), Version: "v9.8.7"}
	for _, fips := range []string{"", "v1.0.0"} {
		to := target{Platform: Platform{Arch: runtime.GOARCH}, fips: fips}
		if err := b.buildProgram(t.Context(), to, ownHook, false); err != nil {
			t.Fatal(err)
		}
		program := b.HookFiles(runtime.GOARCH, Product{FIPS: fips})[1]
		requireModule(t, program, fips)
		cmd := exec.CommandContext(t.Context(), program, "--version")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), " v9.8.7"+formatSuffix(fips)+"\n") {
			t.Errorf("with FIPS %q it says %q (%v)", fips, out, err)
		}
	}
}

// Every image is built with and without FIPS, each of programs of its own.
func TestImagesOfBothFlavoursAreApart(t *testing.T) {
	t.Setenv("PATH", toolsWithoutApt(t))
	b := Builder{Repo: repoOfStubs(t), Work: t.TempDir(), Version: "v9.8.7", FIPS: "v1.0.0", Platforms: []Platform{{Arch: runtime.GOARCH}}, Progress: func(string) {}}
	specs, err := b.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) != 2*len(Products()) {
		t.Errorf("%d images are built, want two of each product", len(specs))
	}
	for _, p := range Products() {
		usual, fips := specs[p.Name][0], specs[p.Name+"-fips"][0]
		if usual.Name != "docker.io/deviceshare/"+p.Name+":v9.8.7" || fips.Name != usual.Name+"-fips" {
			t.Errorf("the images are %s and %s", usual.Name, fips.Name)
		}
		programs := map[string]int{}
		for _, f := range fips.Files {
			programs[filepath.Base(filepath.Dir(f.Source))]++
		}
		if programs["bin"] != 0 || programs["bin-fips"] != map[bool]int{false: 1, true: 3}[p.HasBase()] {
			t.Errorf("the files of %s are of %v", fips.Name, programs)
		}
	}
}

func TestOnlyAVersionOfTheFIPSModuleIsTaken(t *testing.T) {
	for version, good := range map[string]bool{"v1.0.0": true, "v1.26.0": true, "latest": false, "off": false, "": false, "v1.0.0-x": false, "1.0.0": false} {
		if err := CheckFIPS(version); (err == nil) != good {
			t.Errorf("version %q: %v", version, err)
		}
	}
}
