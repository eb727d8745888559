// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strconv"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/sharing"
)

// Slots are the abstract devices of the count resource: as many per device as it
// may have sharers. Their names and NUMA nodes follow the device, so that the
// kubelet's topology manager and its listings mean something, but which device a
// container gets is the scheduler's decision alone.
func Slots(inv *sharing.Inventory) []*pluginapi.Device {
	var slots []*pluginapi.Device
	for i := range inv.Devices {
		d := &inv.Devices[i]
		health := pluginapi.Healthy
		if !d.Healthy {
			health = pluginapi.Unhealthy
		}
		var topology *pluginapi.TopologyInfo
		if d.NUMA >= 0 {
			topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(d.NUMA)}}}
		}
		for n := range d.MaxShares {
			slots = append(slots, &pluginapi.Device{ID: string(d.ID) + "-" + strconv.Itoa(n), Health: health, Topology: topology})
		}
	}
	return slots
}

// Units are the kubelet devices of an amount offered one by one, named as the old
// device plugin named them: kind is "memory" or "core". of is the amount per
// device of the inventory.
func Units(inv *sharing.Inventory, kind string, of func(*sharing.Device) int64) []*pluginapi.Device {
	var units []*pluginapi.Device
	for i := range inv.Devices {
		d := &inv.Devices[i]
		health := pluginapi.Healthy
		if !d.Healthy {
			health = pluginapi.Unhealthy
		}
		prefix := string(d.ID) + "-" + kind + "-"
		for n := range of(d) {
			units = append(units, &pluginapi.Device{ID: prefix + strconv.FormatInt(n, 10), Health: health})
		}
	}
	return units
}
