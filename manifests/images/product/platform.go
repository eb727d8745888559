// SPDX-License-Identifier: Apache-2.0

package product

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Platform is an architecture that images are built for.
type Platform struct {
	Arch     string // as Go and Debian name it
	compiler string // gcc for it, where this machine is another
	packages []string
}

// Platforms are those of a release.
func Platforms() []Platform {
	return []Platform{
		{"amd64", "x86_64-linux-gnu-gcc", []string{"gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"}},
		{"arm64", "aarch64-linux-gnu-gcc", []string{"gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"}},
	}
}

// ParsePlatforms reads a list of architectures, separated by commas.
func ParsePlatforms(list string) ([]Platform, error) {
	var out []Platform
	var known []string
	byArch := map[string]Platform{}
	for _, p := range Platforms() {
		known, byArch[p.Arch] = append(known, p.Arch), p
	}
	for arch := range strings.SplitSeq(list, ",") {
		p, ok := byArch[arch]
		if !ok {
			return nil, fmt.Errorf("architecture %q: want %s, or several with commas between", arch, strings.Join(known, " or "))
		}
		delete(byArch, arch) // asked for twice is a mistake
		out = append(out, p)
	}
	return out, nil
}

// findCompiler returns the C compiler for the platform. On a machine of another architecture
// Debian's cross compiler is used, and installed where root may do it.
func (p Platform) findCompiler(ctx context.Context, progress func(string)) (string, error) {
	if p.Arch == runtime.GOARCH {
		return "gcc", nil
	}
	if _, err := exec.LookPath(p.compiler); err == nil {
		return p.compiler, nil
	}
	missing := fmt.Errorf("no C compiler for %s: install %s (on Debian: apt-get install %s)", p.Arch, p.compiler, strings.Join(p.packages, " "))
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return "", missing
	}
	progress("installing " + strings.Join(p.packages, " and "))
	install := append([]string{"-q", "install", "-y", "--no-install-recommends"}, p.packages...)
	for _, args := range [][]string{{"-q", "update"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\napt-get %s: %w\n%s", missing, strings.Join(args, " "), err, out)
		}
	}
	return p.compiler, nil
}
