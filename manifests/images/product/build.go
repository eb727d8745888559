// SPDX-License-Identifier: Apache-2.0

package product

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"deviceshare/manifests/images/image"
)

// Builder makes the images of a working copy.
type Builder struct {
	Repo string // root of the working copy
	// Work is where what goes into the images is built; a later build there compiles what changed
	// only.
	Work      string
	Platforms []Platform
	Version   string // tag of the images; what the programs answer to --version
	Revision  string // commit of the working copy
	// FIPS is the version of Go's FIPS 140-3 module with which all images are built a second time.
	// Empty builds them once.
	FIPS string
	// IsRelease makes the base of Debian packages anew, with what Debian corrected since, and
	// leaves no platform out.
	IsRelease bool
	Progress  func(string)
}

// Build compiles the products for every platform and returns the images' descriptions by the
// product's ID. A platform after the first for which this machine finds no C compiler or no
// Debian packages is left out with a line that says so.
func (b Builder) Build(ctx context.Context) (map[string][]image.Spec, error) {
	specs := map[string][]image.Spec{}
	for i, p := range b.Platforms {
		cc, err := b.fetchInputs(ctx, p)
		if err != nil && i > 0 && !b.IsRelease && ctx.Err() == nil {
			b.Progress(fmt.Sprintf("leaving %s out: %v", p.Arch, err))
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := b.buildFor(ctx, p, cc); err != nil {
			return nil, err
		}
		for _, product := range b.listProducts() {
			s, err := product.imageSpec(p.Arch, b.archDir(p.Arch), b.Version, b.Revision)
			if err != nil {
				return nil, err
			}
			specs[product.ID()] = append(specs[product.ID()], s)
		}
	}
	return specs, nil
}

// listProducts returns the images that are built.
func (b Builder) listProducts() []Product {
	all := Products()
	if b.FIPS == "" {
		return all
	}
	for _, p := range Products() {
		p.FIPS = b.FIPS
		all = append(all, p)
	}
	return all
}

func (b Builder) archDir(arch string) string { return filepath.Join(b.Work, arch) }

// ProgramFile is the program of a product for one architecture, once it is built.
func (b Builder) ProgramFile(arch string, p Product) string {
	return b.programPath(arch, p.FIPS, p.Program())
}

// BaseDir holds the files of Debian packages for one architecture, once they were fetched.
func (b Builder) BaseDir(arch string) string { return filepath.Join(b.archDir(arch), "base") }

// fetchInputs gets what the images take from elsewhere, and returns the C compiler.
func (b Builder) fetchInputs(ctx context.Context, p Platform) (cc string, err error) {
	if cc, err = p.findCompiler(ctx, b.Progress); err != nil {
		return "", err
	}
	return cc, b.buildBase(ctx, p)
}

// target is what Go programs are compiled for.
type target struct {
	Platform
	cc   string // C compiler; empty where no program holds C
	fips string // as Product.FIPS
}

// listVariables returns the environment of go build. A GOFIPS140 of the caller does not count.
func (t target) listVariables(cgo string) []string {
	return []string{"CGO_ENABLED=" + cgo, "GOOS=linux", "GOARCH=" + t.Arch, "CC=" + t.cc, "GOFIPS140=" + cmp.Or(t.fips, "off")}
}

// formatProgress returns a line of progress about a program.
func (t target) formatProgress(program string) string {
	line := "building " + program + " for " + t.Arch
	if t.fips != "" {
		line += " with FIPS 140-3 module " + t.fips
	}
	return line
}

func (b Builder) buildFor(ctx context.Context, p Platform, cc string) error {
	b.Progress("building libvgpu.so for " + p.Arch)
	if err := b.buildLibrary(ctx, p, cc); err != nil {
		return err
	}
	if err := b.buildPrograms(ctx, target{Platform: p, cc: cc}); err != nil || b.FIPS == "" {
		return err
	}
	return b.buildPrograms(ctx, target{Platform: p, cc: cc, fips: b.FIPS})
}

func (b Builder) buildPrograms(ctx context.Context, t target) error {
	b.Progress(t.formatProgress(hook))
	if err := b.buildHook(ctx, t); err != nil {
		return err
	}
	b.Progress(t.formatProgress(ownHook))
	if err := b.buildProgram(ctx, t, ownHook, false); err != nil {
		return err
	}
	for _, product := range Products() {
		b.Progress(t.formatProgress(product.Program()))
		if err := b.buildProgram(ctx, t, product.Program(), product.isDynamic); err != nil {
			return err
		}
	}
	return nil
}

// buildProgram compiles a command of ours so that neither the place nor the time of the build is in
// it.
func (b Builder) buildProgram(ctx context.Context, t target, name string, isDynamic bool) error {
	ldflags, cgo := "-s -w -X main.version="+b.Version+formatSuffix(t.fips), "0"
	if isDynamic {
		// go-nvml resolves the driver's symbols when they are called: they stay unbound until then.
		ldflags, cgo = ldflags+" -extldflags=-Wl,-z,lazy", "1"
	}
	return runCommand(ctx, b.Repo, t.listVariables(cgo), "go", "build", "-trimpath", "-buildvcs=false", "-tags=netgo,osusergo", "-ldflags="+ldflags,
		"-o", b.programPath(t.Arch, t.fips, name), "./cmd/"+name)
}

// Plugins are the commands that kubectl finds by their names. The first calls the others.
func Plugins() []string { return []string{"kubectl-deviceshare", "kubectl-deviceshare-simulate"} }

// BuildPlugins compiles the plugins of kubectl for every platform. They hold no C, so a platform
// without a C compiler is no hindrance.
func (b Builder) BuildPlugins(ctx context.Context) error {
	for _, p := range b.Platforms {
		for _, name := range Plugins() {
			t := target{Platform: p}
			b.Progress(t.formatProgress(name))
			if err := b.buildProgram(ctx, t, name, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// PluginFile is a plugin for one architecture, once it is built.
func (b Builder) PluginFile(arch, name string) string { return b.programPath(arch, "", name) }

func (b Builder) programPath(arch, fips, name string) string {
	return filepath.Join(b.archDir(arch), programDir(fips), name)
}

// programDir is where Go programs are built, below the directory of an architecture.
func programDir(fips string) string { return "bin" + formatSuffix(fips) }

// HookFiles are the hooks in a product's image for one architecture, once they are built.
func (b Builder) HookFiles(arch string, p Product) []string {
	return []string{b.programPath(arch, p.FIPS, hook), b.programPath(arch, p.FIPS, ownHook)}
}

// buildHook compiles NVIDIA's hook, of the version that this module names. The host runs it, which
// may have any C library or none, so its own is in it.
func (b Builder) buildHook(ctx context.Context, t target) error {
	return runCommand(ctx, filepath.Join(b.Repo, "manifests/images"), t.listVariables("1"), "go", "build", "-trimpath", "-buildvcs=false", "-tags=netgo,osusergo",
		"-ldflags=-s -w -extldflags=-static", "-o", b.programPath(t.Arch, t.fips, hook), "github.com/NVIDIA/nvidia-container-toolkit/cmd/"+hook)
}

// buildLibrary compiles libvgpu.so and the same under the names of the driver's libraries.
func (b Builder) buildLibrary(ctx context.Context, p Platform, cc string) error {
	source, built := filepath.Join(b.Repo, "hami-core"), filepath.Join(b.archDir(p.Arch), "hami-core")
	return runCommand(ctx, source, nil, "make", "B="+built, "CC="+cc, "LDFLAGS=-s", "CFLAGS=-O3 -ffile-prefix-map="+source+"=.")
}

// buildBase gathers the files of Debian packages that the device plugin needs.
func (b Builder) buildBase(ctx context.Context, p Platform) error {
	script := filepath.Join(b.Repo, "manifests/images/base.sh")
	base := b.BaseDir(p.Arch)
	if !b.IsRelease && isNewer(base, script) {
		return nil
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		return fmt.Errorf("make the base of the device plugin's image: it is made of Debian packages, by apt-get and dpkg-deb: %w", err)
	}
	b.Progress("fetching Debian packages for " + p.Arch)
	unfinished := base + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("make the base of the device plugin's image: %w", err)
	}
	if err := runCommand(ctx, b.Repo, nil, script, p.Arch, unfinished, filepath.Join(b.archDir(p.Arch), "apt")); err != nil {
		return err
	}
	if err := os.RemoveAll(base); err != nil {
		return fmt.Errorf("make the base of the device plugin's image: %w", err)
	}
	return os.Rename(unfinished, base)
}

// isNewer reports whether a file is there and was made after another one.
func isNewer(file, than string) bool {
	a, errA := os.Stat(file)
	b, errB := os.Stat(than)
	return errA == nil && errB == nil && a.ModTime().After(b.ModTime())
}

// runCommand runs a command; its output is part of the error.
func runCommand(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = slices.Concat(os.Environ(), env)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
