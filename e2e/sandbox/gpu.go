// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// nvidiaMajor is the major number of NVIDIA's character devices
// (Documentation/admin-guide/devices.txt).
const nvidiaMajor = 195

// controlMinor is the minor number of /dev/nvidiactl.
const controlMinor = 255

// libraries are the libraries and programs that a node of a sandbox has: path below the repository
// to name below its library directory.
var libraries = map[string]string{
	"e2e/fakegpu/build/libcuda.so.1":            "libcuda.so.1",
	"e2e/fakegpu/build/libnvidia-ml.so.1":       "libnvidia-ml.so.1",
	"e2e/fakegpu/build/fakegpuctl":              "fakegpuctl",
	"hami-core/build/libvgpu.so":                "libvgpu.so",
	"hami-core/build/libcuda.so.1":              "standin/libcuda.so.1",
	"hami-core/build/libnvidia-ml.so.1":         "standin/libnvidia-ml.so.1",
	".sandbox/bin/deviceshare-hook":             "deviceshare-hook",
	"e2e/fakegpu/build/nvidia-cuda-mps-control": "nvidia-cuda-mps-control",
}

// installGPUs copies the fake driver and libvgpu.so below the state directory, so that a later
// build does not change a running sandbox, and plugs in the fake GPUs.
func (c *Cluster) installGPUs() error {
	l := c.layout
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
	if err := os.Chmod(l.gpuDir(), 0o777); err != nil {
		return fmt.Errorf("open the fake driver's directory to containers: %w", err)
	}
	return c.plug()
}

// devDir is the cluster's directory of device files.
func (c *Cluster) devDir() string {
	if c.opts.Installed {
		return "/dev" // of its own, see mountDev
	}
	return c.layout.devDir()
}

// plug writes the topology and makes the device files it needs.
func (c *Cluster) plug() error {
	l, topology := c.layout, c.opts.Topology
	if err := os.WriteFile(filepath.Join(l.gpuDir(), "topology"), []byte(topology), 0o644); err != nil {
		return fmt.Errorf("write topology: %w", err)
	}
	nodes := map[string]int{"nvidiactl": controlMinor}
	for i := range countGPUs(topology) {
		nodes[fmt.Sprintf("nvidia%d", i)] = i
	}
	return c.inside.do(func() error { return makeDevices(c.devDir(), nodes) })
}

// makeDevices makes NVIDIA's device files with the minor numbers by their names.
func makeDevices(dir string, minors map[string]int) error {
	for name, minor := range minors {
		path := filepath.Join(dir, name)
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, nvidiaMajor<<8|minor); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make device file %s: %w", path, err)
		}
		// mknod(2) applies the umask; containers need the file as open as NVIDIA's is.
		if err := os.Chmod(path, 0o666); err != nil {
			return fmt.Errorf("make device file %s: %w", path, err)
		}
	}
	return nil
}

// SwapGPUs exchanges the fake GPUs of the real node for others, as if the machine had been off
// meanwhile: the device plugin and the kubelet stop, whoever uses a device is killed, and both
// start again. Pods on the node should be gone.
func (c *Cluster) SwapGPUs(ctx context.Context, topology string) error {
	return c.whileOff(ctx, func() error {
		for _, name := range []string{"state", "mig-minors"} {
			if err := os.Remove(filepath.Join(c.layout.gpuDir(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("forget the old GPUs: %w", err)
			}
		}
		if err := c.inside.do(func() error { return removeDevices(c.devDir()) }); err != nil {
			return err
		}
		c.opts.Topology = topology
		return c.plug()
	})
}

// removeDevices removes the device files of GPUs and of partitions.
func removeDevices(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "nvidia[0-9]*"))
	if err != nil {
		return err
	}
	for _, path := range append(old, filepath.Join(dir, "nvidia-caps")) {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("forget the old GPUs: %w", err)
		}
	}
	return nil
}

// RebootGPUs does to the real node what a reboot does to its GPUs: everything that uses them dies,
// partitions are gone, and the kubelet and the device plugin start as on any morning. The rest of
// the machine runs on.
func (c *Cluster) RebootGPUs(ctx context.Context) error {
	return c.whileOff(ctx, func() error { return nil })
}

func (c *Cluster) whileOff(ctx context.Context, change func() error) error {
	off := []string{Kubelet, DevicePlugin}
	if c.opts.Installed { // the kubelet ends the device plugin
		slices.Reverse(off)
	}
	for _, name := range off {
		if err := c.StopComponent(name); err != nil {
			return err
		}
	}
	if out, err := c.FakeGPU(ctx, "reboot"); err != nil {
		return fmt.Errorf("reboot the fake GPUs: %w\n%s", err, out)
	}
	if err := change(); err != nil {
		return err
	}
	// The other way round: who waits for the kubelet registers before it looks at pods.
	for _, name := range []string{DevicePlugin, Kubelet} {
		if err := c.StartComponent(name); err != nil {
			return err
		}
	}
	return errors.Join(c.WaitReady(ctx, Kubelet), c.WaitReady(ctx, DevicePlugin))
}

// countGPUs counts the gpu lines of a topology. Whether they make sense is for the fake driver to
// say.
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
	return []string{"FAKEGPU_DIR=" + c.layout.gpuDir(), "FAKEGPU_DEV=" + c.devDir(), "LD_LIBRARY_PATH=" + c.layout.libDir()}
}
