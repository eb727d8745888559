// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// nvidiaMajor is the major number of NVIDIA's character devices (Documentation/admin-guide/devices.txt).
const nvidiaMajor = 195

// controlMinor is the minor number of /dev/nvidiactl.
const controlMinor = 255

// libraries are the files of C code that a sandbox uses: path below the repository to name below its library directory.
var libraries = map[string]string{
	"e2e/fakegpu/build/libcuda.so.1":      "libcuda.so.1",
	"e2e/fakegpu/build/libnvidia-ml.so.1": "libnvidia-ml.so.1",
	"e2e/fakegpu/build/fakegpuctl":        "fakegpuctl",
	"hami-core/build/libvgpu.so":          "libvgpu.so",
}

// installGPUs copies the fake driver and libvgpu.so below the state directory, so that a later build does not change
// a running sandbox, and makes the device files of the fake GPUs.
func installGPUs(l layout, topology string) error {
	for from, to := range libraries {
		src := filepath.Join(l.repo, from)
		if !exists(src) {
			continue
		}
		data, err := readFile(src)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(l.libDir(), to), data, 0o755); err != nil {
			return fmt.Errorf("install %s: %w", to, err)
		}
	}
	nodes := map[string]int{"nvidiactl": controlMinor}
	for i := range countGPUs(topology) {
		nodes[fmt.Sprintf("nvidia%d", i)] = i
	}
	for name, minor := range nodes {
		path := filepath.Join(l.devDir(), name)
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, nvidiaMajor<<8|minor); err != nil {
			return fmt.Errorf("make device file %s: %w", path, err)
		}
		// mknod(2) applies the umask; containers need the file as open as NVIDIA's is.
		if err := os.Chmod(path, 0o666); err != nil {
			return fmt.Errorf("make device file %s: %w", path, err)
		}
	}
	return os.Chmod(l.gpuDir(), 0o777)
}

// countGPUs counts the gpu lines of a topology. Whether they make sense is for the fake driver to say.
func countGPUs(topology string) int {
	n := 0
	for line := range strings.Lines(topology) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == "gpu" {
			n++
		}
	}
	return n
}

// gpuEnv leads a process on the host to the fake driver and its state.
func (c *Cluster) gpuEnv() []string {
	return []string{"FAKEGPU_DIR=" + c.layout.gpuDir(), "FAKEGPU_DEV=" + c.layout.devDir(), "LD_LIBRARY_PATH=" + c.layout.libDir()}
}
