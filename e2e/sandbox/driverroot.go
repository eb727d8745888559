// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// driverRoot is where an installed cluster has the fake driver: the place of a driver that comes in a container of its
// own, as with NVIDIA's GPU operator.
const driverRoot = "/run/nvidia/driver"

// driverLibraries is where Debian's driver packages put libraries, below the driver's root.
const driverLibraries = "usr/lib/x86_64-linux-gnu"

// driverFiles are the files of the fake driver: path below the repository to name below the driver's root. VERSION is
// replaced by the driver's.
var driverFiles = map[string]string{
	"e2e/fakegpu/build/libcuda.so.1":            driverLibraries + "/libcuda.so.VERSION",
	"e2e/fakegpu/build/libnvidia-ml.so.1":       driverLibraries + "/libnvidia-ml.so.VERSION",
	"e2e/fakegpu/build/nvidia-cuda-mps-control": "usr/bin/nvidia-cuda-mps-control",
}

// makeDriverRoot lays out the fake driver as a driver's package does: libraries by their version, with a link by their
// soname. Copies keep a later build from changing a running cluster.
func makeDriverRoot(l layout, topology string) error {
	version, err := driverVersion(topology)
	if err != nil {
		return err
	}
	for from, to := range driverFiles {
		to = filepath.Join(l.driverRoot(), strings.ReplaceAll(to, "VERSION", version))
		data, err := readFile(filepath.Join(l.repo, from))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, data, 0o755)
		}
		if err != nil {
			return fmt.Errorf("install the fake driver: %w", err)
		}
	}
	for _, name := range []string{"libcuda.so", "libnvidia-ml.so"} {
		link := filepath.Join(l.driverRoot(), driverLibraries, name+".1")
		if err := os.Symlink(name+"."+version, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("install the fake driver: %w", err)
		}
	}
	return nil
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
