// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// capsInside is where the driver's libraries look for capability nodes.
const capsInside = "/dev/nvidia-caps"

// Capabilities finds the nodes that open one MIG device to a container: besides
// the parent's node, which opens nothing by itself, one of the GPU instance and
// one of the compute instance.
type Capabilities struct {
	// Minors is the driver's table of node numbers.
	Minors string
	// Root is the host directory of nvidia-cap<N>.
	Root string
	// Devices finds MIG devices.
	Devices MIGLocator
	// Maker makes nodes that are missing; nil makes none. NVIDIA's older container
	// runtime made them all, and what takes its place does not.
	Maker *NodeMaker
}

// MIGLocator finds a MIG device by its UUID. driver.Driver is one.
type MIGLocator interface {
	MIGDevice(uuid string) (driver.MIGDevice, error)
}

func isMIGDevice(id sharing.DeviceID) bool { return strings.HasPrefix(string(id), "MIG-") }

// instanceNodes are the two capability nodes of a MIG device. One that is missing is an
// error: without it the container would start and find no device.
func (c *Capabilities) instanceNodes(m driver.MIGDevice) ([]*specs.DeviceNode, error) {
	text, err := os.ReadFile(c.Minors)
	if err != nil {
		return nil, fmt.Errorf("read the numbers of capability nodes: %w", err)
	}
	table, err := parseMinors(text)
	if err != nil {
		return nil, fmt.Errorf("read the numbers of capability nodes: %s: %w", c.Minors, err)
	}
	var nodes []*specs.DeviceNode
	for _, capability := range []string{gpuInstance(m.Minor, m.GI), computeInstance(m.Minor, m.GI, m.CI)} {
		minor, ok := table[capability]
		if !ok {
			return nil, fmt.Errorf("%s has no capability %s", c.Minors, capability)
		}
		name := fmt.Sprintf("nvidia-cap%d", minor)
		host := filepath.Join(c.Root, name)
		if err := c.ensureNode(host, minor); err != nil {
			return nil, fmt.Errorf("capability node of %s (nvidia-modprobe -f /proc/driver/nvidia/capabilities/%s makes it): %w",
				capability, strings.Replace(capability, "/", "/mig/", 1), err)
		}
		nodes = append(nodes, &specs.DeviceNode{Path: path.Join(capsInside, name), HostPath: host, Permissions: "rw"})
	}
	return nodes, nil
}

func (c *Capabilities) ensureNode(path string, minor int) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) || c.Maker == nil {
		return err
	}
	if err := c.Maker.makeNode(path, minor); err != nil {
		return err
	}
	_, err = os.Stat(path)
	return err
}
