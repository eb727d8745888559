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
		var topology *pluginapi.TopologyInfo
		if d.NUMA >= 0 {
			topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(d.NUMA)}}}
		}
		for n := range d.MaxShares {
			slots = append(slots, &pluginapi.Device{ID: string(d.ID) + "-" + strconv.Itoa(n), Health: HealthOf(d), Topology: topology})
		}
	}
	return slots
}

// HealthOf is the health of a device in the kubelet's words.
func HealthOf(d *sharing.Device) string {
	if d.Healthy {
		return pluginapi.Healthy
	}
	return pluginapi.Unhealthy
}
