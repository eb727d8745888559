// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// LibraryLocation says where the driver's library is.
type LibraryLocation struct {
	// Path is the file libnvidia-ml.so.1; empty looks for it.
	Path string
	// Root is the root of the system that the driver is installed in, as this process sees it;
	// empty leaves the search to the dynamic linker.
	//
	// That system is another one than this process's: its C library may be older or newer. So no
	// directory of it may be where the dynamic linker looks for other libraries too, such as
	// LD_LIBRARY_PATH: a program that gets its loader from one C library and the rest from another
	// ends before main.
	Root string
}

// libraryName is how the dynamic linker knows NVML.
const libraryName = "libnvidia-ml.so.1"

// libraryDirectories are where systems have the driver's libraries: those in which NVIDIA's
// container toolkit looks, then what Google's, NixOS' and Bottlerocket's images use.
func libraryDirectories() []string {
	return []string{
		"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
		"usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/aarch64-linux-gnu/nvidia/current",
		"lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib",
		"usr/local/nvidia/lib64", "home/kubernetes/bin/nvidia/lib64", "run/opengl-driver/lib",
		"x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla", "aarch64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
	}
}

// errNoLibrary: the search found nothing.
var errNoLibrary = errors.New("no " + libraryName)

// findLibrary returns the library's path for the dynamic linker. It looks anew each time: a driver
// that comes in a container may be installed later, and replaced by another version.
func (p LibraryLocation) findLibrary() (string, error) {
	if p.Path != "" {
		return p.Path, nil
	}
	if p.Root == "" {
		return libraryName, nil
	}
	var unfit []error
	for _, dir := range libraryDirectories() {
		// Links of that system are followed in that system.
		path, err := securejoin.SecureJoin(p.Root, filepath.Join(dir, libraryName))
		if err != nil {
			unfit = append(unfit, fmt.Errorf("%s: %w", filepath.Join(p.Root, dir), err))
			continue
		}
		err = checkLibrary(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			unfit = append(unfit, fmt.Errorf("%s: %w", path, err))
		}
	}
	if len(unfit) > 0 {
		return "", fmt.Errorf("%w that can be loaded below %s: %w", errNoLibrary, p.Root, errors.Join(unfit...))
	}
	return "", fmt.Errorf("%w below %s, in none of %s; name it with --nvml-library if it is elsewhere",
		errNoLibrary, p.Root, strings.Join(libraryDirectories(), ", "))
}

// machines are what libraries are compiled for, by GOARCH.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkLibrary reports why a file is no library for this program: many systems have libraries of 32
// bits beside the others.
func checkLibrary(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lib, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("it is no library: %w", err)
	}
	if lib.Class != elf.ELFCLASS64 || lib.Type != elf.ET_DYN || lib.Machine != machines[runtime.GOARCH] {
		return fmt.Errorf("it is for another machine: %s, %s, %s", lib.Class, lib.Type, lib.Machine)
	}
	return nil
}
