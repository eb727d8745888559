// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// nvlinkMax is the number of NVLinks NVML numbers per device
// (NVML_NVLINK_MAX_LINKS).
const nvlinkMax = 18

// nvmlDevice is a handle of the real driver. broken is why there is none.
type nvmlDevice struct {
	driver *NVML
	index  int
	handle nvml.Device
	broken error
}

func (d *nvmlDevice) Index() int { return d.index }

func (d *nvmlDevice) Probe() error {
	if err := d.checkReachable(); err != nil {
		return err
	}
	return d.checkRecovery()
}

// checkReachable asks for UUID and memory, which the driver answers only while it reaches the
// device.
func (d *nvmlDevice) checkReachable() error {
	if d.broken != nil {
		return d.broken
	}
	if err := d.driver.requireOpen(); err != nil {
		return err
	}
	if _, ret := d.handle.GetUUID(); ret != nvml.SUCCESS {
		return nvmlFailure("nvmlDeviceGetUUID", ret)
	}
	_, ret := d.handle.GetMemoryInfo()
	return nvmlFailure("nvmlDeviceGetMemoryInfo", ret)
}

// usableMemory is what programs can have in all: what the device has without what the
// driver keeps for itself. An H200 has 143,771 MiB, of which no program ever gets
// the last 615: shares that add up to all of it would not hold. Drivers before
// 510 do not tell the two apart.
func (d *nvmlDevice) usableMemory() (sharing.Bytes, error) {
	if v2, ret := d.handle.GetMemoryInfo_v2(); ret == nvml.SUCCESS && v2.Reserved < v2.Total {
		return sharing.Bytes(min(v2.Total-v2.Reserved, uint64(sharing.MaxBytes))), nil
	}
	v1, ret := d.handle.GetMemoryInfo()
	return sharing.Bytes(min(v1.Total, uint64(sharing.MaxBytes))), nvmlFailure("nvmlDeviceGetMemoryInfo", ret)
}

func (d *nvmlDevice) Facts() (node.Facts, error) {
	if err := d.checkReachable(); err != nil {
		return node.Facts{}, fmt.Errorf("read device %d: %w", d.index, err)
	}
	f := node.Facts{NUMA: -1}
	uuid, ret := d.handle.GetUUID()
	err := nvmlFailure("nvmlDeviceGetUUID", ret)
	if err == nil {
		f.UUID = sharing.DeviceID(uuid)
		f.Model, ret = d.handle.GetName()
		err = nvmlFailure("nvmlDeviceGetName", ret)
	}
	if err == nil {
		f.Memory, err = d.usableMemory()
	}
	if err == nil {
		f.Minor, ret = d.handle.GetMinorNumber()
		err = nvmlFailure("nvmlDeviceGetMinorNumber", ret)
	}
	if err == nil {
		f.PCI, err = d.pciBusID()
	}
	if err != nil {
		return node.Facts{}, fmt.Errorf("read device %d: %w", d.index, err)
	}
	f.NUMA = d.numaNode(f.PCI)
	f.Compute, f.CUDA = d.readComputeVersions()
	f.Virtual = d.isVirtual()
	f.MIG, err = d.readMIG()
	if err != nil {
		return node.Facts{}, fmt.Errorf("read partitions of device %d: %w", d.index, err)
	}
	return f, nil
}

// pciBusID is the bus id as the kernel spells it.
func (d *nvmlDevice) pciBusID() (string, error) {
	info, ret := d.handle.GetPciInfo()
	if err := nvmlFailure("nvmlDeviceGetPciInfo", ret); err != nil {
		return "", err
	}
	return fmt.Sprintf("%04x:%02x:%02x.0", info.Domain, info.Bus, info.Device), nil
}

// numaNode asks the driver, then the kernel; -1 when neither knows.
func (d *nvmlDevice) numaNode(pci string) int {
	if d.driver.hasSymbol("nvmlDeviceGetNumaNodeId") {
		if node, ret := d.handle.GetNumaNodeId(); ret == nvml.SUCCESS && node >= 0 {
			return node
		}
	}
	text, err := os.ReadFile(filepath.Join("/sys/bus/pci/devices", pci, "numa_node"))
	if err != nil {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || node < 0 {
		return -1
	}
	return node
}

func (d *nvmlDevice) Link(to Device) (sharing.Link, error) {
	other, ok := to.(*nvmlDevice)
	if !ok {
		return sharing.Link{}, fmt.Errorf("link of device %d: the other device is of another driver", d.index)
	}
	if d.broken != nil || other.broken != nil {
		return sharing.Link{}, fmt.Errorf("link of device %d to %d: %w", d.index, other.index, ErrLost)
	}
	if n := d.countNVLinks(other); n > 0 {
		return sharing.Link{Kind: "nvlink", Count: n}, nil
	}
	if !d.driver.hasSymbol("nvmlDeviceGetTopologyCommonAncestor") {
		return sharing.Link{}, ErrUnsupported
	}
	level, ret := d.handle.GetTopologyCommonAncestor(other.handle)
	if err := nvmlFailure("nvmlDeviceGetTopologyCommonAncestor", ret); err != nil {
		return sharing.Link{}, err
	}
	switch level {
	case nvml.TOPOLOGY_INTERNAL, nvml.TOPOLOGY_SINGLE:
		return sharing.Link{Kind: "pix"}, nil
	case nvml.TOPOLOGY_MULTIPLE:
		return sharing.Link{Kind: "pxb"}, nil
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return sharing.Link{Kind: "phb"}, nil
	case nvml.TOPOLOGY_NODE:
		return sharing.Link{Kind: "node"}, nil
	}
	return sharing.Link{Kind: "sys"}, nil
}

// countNVLinks counts the active NVLinks to the other device, directly or through switches. Through
// those every device reaches every other, by as many links as the one with fewer has.
func (d *nvmlDevice) countNVLinks(other *nvmlDevice) int {
	for _, symbol := range []string{"nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemoteDeviceType"} {
		if !d.driver.hasSymbol(symbol) {
			return 0
		}
	}
	target, err := other.pciBusID()
	if err != nil {
		return 0
	}
	direct, switched := d.activeNVLinks(target)
	if switched > 0 {
		_, back := other.activeNVLinks("")
		switched = min(switched, back)
	}
	return max(direct, switched)
}

func (d *nvmlDevice) activeNVLinks(target string) (direct, switched int) {
	for link := range nvlinkMax {
		if state, ret := d.handle.GetNvLinkState(link); ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		if kind, ret := d.handle.GetNvLinkRemoteDeviceType(link); ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
			switched++
			continue
		}
		remote, ret := d.handle.GetNvLinkRemotePciInfo(link)
		if ret == nvml.SUCCESS && fmt.Sprintf("%04x:%02x:%02x.0", remote.Domain, remote.Bus, remote.Device) == target {
			direct++
		}
	}
	return direct, switched
}
