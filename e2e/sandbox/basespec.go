// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// kernelHook stands for what a kernel with NVIDIA's module shows in every /proc: the table of MIG's
// capabilities. It runs with the container's root file system as its working directory, before that
// becomes the root.
const kernelHook = `mount -t tmpfs -o size=4k none proc/driver && mkdir proc/driver/nvidia-caps && mount --bind "$FAKEGPU" proc/driver/nvidia-caps`

// writeBaseSpec writes the specification from which containerd makes that of every container.
// Beside containerd's own it gives each the fake driver's state, which with real GPUs is the
// kernel's and reached by device files.
func (c *Cluster) writeBaseSpec(ctx context.Context) error {
	text, err := c.inside.run(ctx, nil, filepath.Join(c.layout.runtime(), "ctr"), "oci", "spec")
	if err != nil {
		return fmt.Errorf("ask containerd for its container specification: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return fmt.Errorf("read containerd's container specification: %w", err)
	}
	gpus := c.layout.gpuDir()
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/run/fakegpu", Type: "bind", Source: gpus, Options: []string{"rbind", "rw"}})
	spec.Hooks = &specs.Hooks{CreateContainer: []specs.Hook{{
		Path: "/bin/sh", Args: []string{"sh", "-c", kernelHook}, Env: []string{"PATH=" + os.Getenv("PATH"), "FAKEGPU=" + gpus},
	}}}
	out, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write the container specification: %w", err)
	}
	if err := os.WriteFile(c.layout.config(baseSpecFile), out, 0o644); err != nil {
		return fmt.Errorf("write the container specification: %w", err)
	}
	return nil
}

// baseSpecFile is the specification's name in the config directory.
const baseSpecFile = "base-spec.json"
