// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// driverRoot is where an installed cluster has the fake driver: the place of a driver that comes in
// a container of its own, as with NVIDIA's GPU operator.
const driverRoot = "/run/nvidia/driver"

// driverLibraries is where Debian's driver packages put libraries, below the driver's root.
const driverLibraries = "usr/lib/x86_64-linux-gnu"

// driverFiles are the files of the fake driver: path below the repository to name below the
// driver's root. VERSION is replaced by the driver's.
func driverFiles() map[string]string {
	return map[string]string{
		"e2e/fakegpu/build/libcuda.so.1":      driverLibraries + "/libcuda.so.VERSION",
		"e2e/fakegpu/build/libnvidia-ml.so.1": driverLibraries + "/libnvidia-ml.so.VERSION",
	}
}

// makeDriverRoot lays out a system with the fake driver in it as a driver's container does:
// libraries by their version, with a link by their soname, and programs with the C library that
// they need. Copies keep a later build from changing a running cluster.
func makeDriverRoot(l layout, topology string) error {
	version, err := driverVersion(topology)
	if err != nil {
		return err
	}
	c := newCollector()
	if err := c.add("usr/bin/nvidia-cuda-mps-control", filepath.Join(l.repo, "e2e/fakegpu/build/nvidia-cuda-mps-control")); err != nil {
		return fmt.Errorf("install the fake driver: %w", err)
	}
	files := append(imageSkeleton(), c.files()...)
	for from, to := range driverFiles() {
		files = append(files, imageFile{Path: strings.ReplaceAll(to, "VERSION", version), Source: filepath.Join(l.repo, from)})
	}
	foreign, err := foreignLibrary(l, c)
	if err != nil {
		return fmt.Errorf("install the fake driver: %w", err)
	}
	files = append(files, foreign)
	for _, name := range []string{"libcuda.so", "libnvidia-ml.so"} {
		files = append(files, imageFile{Path: driverLibraries + "/" + name + ".1", Link: name + "." + version})
	}
	for _, f := range files {
		if err := unpack(l.driverRoot(), f); err != nil {
			return fmt.Errorf("install the fake driver: %w", err)
		}
	}
	return nil
}

// foreignLibrary is the C library of another system, where Fedora has it: the host's, with another
// name for what it and its loader share. A program that meets it with another loader ends before
// its main function.
func foreignLibrary(l layout, c *collector) (imageFile, error) {
	return replaced(c, "libc.so.6", l.in("foreign-libc"), "/usr/lib64/libc.so.6", "GLIBC_PRIVATE\x00", "GLIBC_ALIENS!\x00")
}

// unpack makes one entry of an image below a directory of this machine.
func unpack(root string, f imageFile) error {
	to := filepath.Join(root, f.Path)
	if strings.HasSuffix(f.Path, "/") {
		return os.MkdirAll(to, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if f.Link != "" {
		return os.Symlink(f.Link, to)
	}
	data := []byte(f.Text)
	if f.Source != "" {
		var err error
		if data, err = readFile(f.Source); err != nil {
			return err
		}
	}
	return os.WriteFile(to, data, 0o755)
}

// driverVersion reads the version from a topology's line "driver VERSION cuda VERSION".
func driverVersion(topology string) (string, error) {
	for line := range strings.Lines(topology) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "driver" {
			return f[1], nil
		}
	}
	return "", errors.New("read the driver's version from the topology: it has no line \"driver VERSION cuda VERSION\"")
}
