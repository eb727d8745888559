// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The machine that a cluster with Options.TopologyPolicy sees: NUMA nodes of so many CPUs each. The
// first CPU of each is the system's, the others are given to single containers.
const (
	NUMANodes   = 2
	CPUsPerNUMA = 4
)

// showNUMA mounts a description of such a machine over that of the kernel, and returns a container
// runtime that leaves every container on all CPUs, since this machine may have fewer. What a
// kubelet decides is real then: it is in its own record. That containers stay where it put them is
// the kernel's business.
func (c *Cluster) showNUMA() (runc string, err error) {
	root := c.layout.in("sys")
	for path, text := range machineFiles() {
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return "", fmt.Errorf("describe a machine with NUMA nodes: %w", err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			return "", fmt.Errorf("describe a machine with NUMA nodes: %w", err)
		}
	}
	err = c.inside.do(func() error {
		for _, dir := range []string{"cpu", "node"} {
			if err := mountAt(filepath.Join("/sys/devices/system", dir), filepath.Join(root, dir), "", unix.MS_BIND); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	runc = c.layout.in("runc-on-all-cpus")
	if err := os.WriteFile(runc, fmt.Appendf(nil, unpinned, c.runc), 0o755); err != nil {
		return "", fmt.Errorf("write a container runtime that pins nothing: %w", err)
	}
	return runc, nil
}

// unpinned is runc without the lists of CPUs in what it is told: the bundle's file, or an update on
// its input.
const unpinned = `#!/bin/sh
runc=%s
without='s/"cpus":"[0-9,-]*"/"cpus":""/g'
bundle= update=
for word; do
  case "$before" in --bundle|-b) bundle=$word ;; esac
  [ "$word" = update ] && update=1
  before=$word
done
[ -n "$bundle" ] && sed -i "$without" "$bundle/config.json"
[ -n "$update" ] && { sed "$without" | "$runc" "$@"; exit $?; }
exec "$runc" "$@"
`

// machineFiles are the files below /sys/devices/system that a kubelet reads, by their paths.
func machineFiles() map[string]string {
	files := map[string]string{"cpu/online": fmt.Sprintf("0-%d", NUMANodes*CPUsPerNUMA-1)}
	for numa := range NUMANodes {
		distances := make([]string, NUMANodes)
		for other := range distances {
			distances[other] = "20"
		}
		distances[numa] = "10"
		dir := fmt.Sprintf("node/node%d", numa)
		files[dir+"/distance"] = strings.Join(distances, " ")
		files[dir+"/meminfo"] = fmt.Sprintf("Node %d MemTotal: %d kB", numa, 64<<20)
		for i := range CPUsPerNUMA {
			cpu := numa*CPUsPerNUMA + i
			for _, at := range []string{dir, "cpu"} {
				files[fmt.Sprintf("%s/cpu%d/topology/core_id", at, cpu)] = fmt.Sprint(i)
				files[fmt.Sprintf("%s/cpu%d/topology/physical_package_id", at, cpu)] = fmt.Sprint(numa)
			}
		}
	}
	return files
}

// systemCPUs is the list of CPUs that no container gets for itself.
func systemCPUs() string {
	var out []string
	for numa := range NUMANodes {
		out = append(out, fmt.Sprint(numa*CPUsPerNUMA))
	}
	return strings.Join(out, ",")
}
