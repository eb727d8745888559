// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/sharing"
)

// Files is the base for machines where the driver is a list of files: the nodes
// of the devices and a bind mount of each file.
type Files struct {
	// DevRoot is the directory of nvidia0, nvidia1, ... on the host. Inside, they
	// are always below /dev.
	DevRoot string
	// Driver are the bind mounts every container gets.
	Driver []DriverFile
	Minors Minors
	// MIG finds the nodes of MIG devices.
	MIG Capabilities
}

// Minors knows the number of a device's node; false if the device is not on this
// node.
type Minors interface {
	Minor(id sharing.DeviceID) (int, bool)
}

// DriverFile is one file or directory of the driver.
type DriverFile struct {
	Host, Container string
	Writable        bool
}

// ParseDriverFile reads HOST:CONTAINER[:ro|:rw]; read-only is the default.
func ParseDriverFile(text string) (DriverFile, error) {
	parts := strings.Split(text, ":")
	f := DriverFile{}
	switch {
	case len(parts) == 3 && parts[2] == "rw":
		f.Writable = true
	case len(parts) == 2, len(parts) == 3 && parts[2] == "ro":
	default:
		return DriverFile{}, fmt.Errorf("driver file %q: want HOST:CONTAINER or HOST:CONTAINER:rw", text)
	}
	f.Host, f.Container = parts[0], parts[1]
	for _, p := range parts[:2] {
		if err := requireCleanPath(p); err != nil {
			return DriverFile{}, fmt.Errorf("driver file %q: %w", text, err)
		}
	}
	return f, nil
}

// controlNodes are the nodes that belong to no device; those that exist are
// passed on.
func controlNodes() []string {
	return []string{"nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"}
}

// Edits implements Base.
func (f *Files) Edits(_ context.Context, devices []sharing.DeviceID) (*specs.ContainerEdits, error) {
	edits := &specs.ContainerEdits{}
	for _, id := range devices {
		nodes, err := f.nodesOf(id)
		if err != nil {
			return nil, err
		}
		edits.DeviceNodes = append(edits.DeviceNodes, nodes...)
	}
	slices.SortFunc(edits.DeviceNodes, func(a, b *specs.DeviceNode) int { return strings.Compare(a.Path, b.Path) })
	edits.DeviceNodes = slices.CompactFunc(edits.DeviceNodes, func(a, b *specs.DeviceNode) bool { return a.Path == b.Path })
	return edits, nil
}

// Common implements Base.
func (f *Files) Common(context.Context) (*specs.ContainerEdits, error) {
	edits := &specs.ContainerEdits{}
	for _, name := range controlNodes() {
		_, err := os.Stat(filepath.Join(f.DevRoot, name))
		if err == nil {
			edits.DeviceNodes = append(edits.DeviceNodes, f.deviceNode(name))
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("look for %s: %w", name, err)
		}
	}
	for _, d := range f.Driver {
		edits.Mounts = append(edits.Mounts, bindMount(d.Host, d.Container, !d.Writable))
	}
	return edits, nil
}

// nodesOf are the nodes of one device, or of one MIG device and its parent.
func (f *Files) nodesOf(id sharing.DeviceID) ([]*specs.DeviceNode, error) {
	minor, ok := 0, false
	var capabilities []*specs.DeviceNode
	if isMIGDevice(id) {
		m, err := f.MIG.Devices.MIGDevice(string(id))
		if err == nil {
			capabilities, err = f.MIG.instanceNodes(m)
		}
		if err != nil {
			return nil, fmt.Errorf("nodes of MIG device %s: %w", id, err)
		}
		minor, ok = m.Minor, true
	} else {
		minor, ok = f.Minors.Minor(id)
	}
	if !ok {
		return nil, fmt.Errorf("device %s is not on this node", id)
	}
	name := fmt.Sprintf("nvidia%d", minor)
	if _, err := os.Stat(filepath.Join(f.DevRoot, name)); err != nil {
		return nil, fmt.Errorf("node of device %s: %w", id, err)
	}
	return append(capabilities, f.deviceNode(name)), nil
}

func (f *Files) deviceNode(name string) *specs.DeviceNode {
	return &specs.DeviceNode{Path: path.Join("/dev", name), HostPath: filepath.Join(f.DevRoot, name), Permissions: "rw"}
}
