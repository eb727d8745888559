// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// NVIDIAHandler is the handler of RuntimeClasses for NVIDIA's container runtime in an installed
// cluster. It gives containers what their variable NVIDIA_VISIBLE_DEVICES names, asked for or not.
const NVIDIAHandler = "nvidia"

// nvidiaRuntime is the program's name, and that of the script that calls it.
const nvidiaRuntime = "nvidia-container-runtime"

// nvidiaTarget is NVIDIA's container runtime.
func nvidiaTarget(l layout) target {
	return target{what: "NVIDIA's container runtime", module: "e2e/nvidia",
		packages: []string{"github.com/NVIDIA/nvidia-container-toolkit/cmd/" + nvidiaRuntime}, output: l.runtime() + "/",
		flags: []string{"-trimpath", "-tags=" + tagsPureGo, "-ldflags=" + ldStrip + " " + ldLazy}}
}

// writeNVIDIARuntime writes NVIDIA's runtime its configuration, in mode cdi as the GPU operator
// sets it up, the specification of all devices for it, and a script that calls it with both.
func (c *Cluster) writeNVIDIARuntime(runc string) error {
	l := c.layout
	specs := l.config("nvidia-cdi")
	if err := os.MkdirAll(specs, 0o755); err != nil {
		return fmt.Errorf("set up NVIDIA's container runtime: %w", err)
	}
	spec, err := json.Marshal(everyDevice(c.devDir(), countGPUs(c.opts.Topology)))
	if err != nil {
		return fmt.Errorf("describe all devices: %w", err)
	}
	settings := l.nvidiaSettings()
	if err := os.MkdirAll(filepath.Dir(settings), 0o755); err != nil {
		return fmt.Errorf("set up NVIDIA's container runtime: %w", err)
	}
	for path, text := range map[string]string{
		filepath.Join(specs, "nvidia.json"): string(spec),
		settings: fmt.Sprintf("[nvidia-container-runtime]\nruntimes = [%q]\nmode = \"cdi\"\n[nvidia-container-runtime.modes.cdi]\nspec-dirs = [%q]\n",
			runc, specs),
		l.config(nvidiaRuntime): fmt.Sprintf("#!/bin/sh\nNVIDIA_CTK_CONFIG_FILE_PATH=%s exec %s \"$@\"\n",
			settings, filepath.Join(l.runtime(), nvidiaRuntime)),
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			return fmt.Errorf("set up NVIDIA's container runtime: %w", err)
		}
	}
	return nil
}

// nvidiaSettings is the configuration of NVIDIA's runtime, beside its program as the GPU operator
// keeps it.
func (l layout) nvidiaSettings() string { return l.config(".config", nvidiaRuntime, "config.toml") }

// SetNVIDIARuntime writes a line before the settings of NVIDIA's runtime, in place of the one that
// was written before. The next container goes by it.
func (c *Cluster) SetNVIDIARuntime(line string) error {
	text, err := os.ReadFile(c.layout.nvidiaSettings())
	if err != nil {
		return fmt.Errorf("set NVIDIA's container runtime: %w", err)
	}
	rest := text[bytes.IndexByte(text, '['):]
	if err := os.WriteFile(c.layout.nvidiaSettings(), append([]byte(line+"\n"), rest...), 0o644); err != nil {
		return fmt.Errorf("set NVIDIA's container runtime: %w", err)
	}
	return nil
}

// everyDevice is the specification of a node's devices under the name all.
func everyDevice(dev string, gpus int) cdi.Spec {
	names := []string{"nvidiactl"}
	for i := range gpus {
		names = append(names, fmt.Sprintf("nvidia%d", i))
	}
	var edits cdi.ContainerEdits
	for _, name := range names {
		edits.DeviceNodes = append(edits.DeviceNodes, &cdi.DeviceNode{Path: "/dev/" + name, HostPath: filepath.Join(dev, name)})
	}
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		edits.Mounts = append(edits.Mounts, &cdi.Mount{HostPath: filepath.Join(driverRoot, driverLibraries, name),
			ContainerPath: "/" + driverLibraries + "/" + name, Options: []string{"ro", "bind"}})
	}
	return cdi.Spec{Version: "0.6.0", Kind: "nvidia.com/gpu", Devices: []cdi.Device{{Name: "all", ContainerEdits: edits}}}
}
