// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strconv"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/sharing"
)

// Slots are the abstract devices of the count resource: as many per device as it may have sharers.
// They are named after the device for who lists them, but which device a container gets is the
// scheduler's decision alone, and the kubelet chooses slots without knowing it. A slot therefore
// names a NUMA node only if all devices share it; numa is that node, or -1. With any other hint the
// kubelet would take CPUs from one node, or refuse the pod for good for the lack of them, while its
// device may be at another.
//
// For the same reason a slot is healthy whether or not its device works. A kubelet that starts anew
// refuses pods for good whose slots are not healthy, unless it sees a container of theirs run, and
// the devices that they were given may all work.
func Slots(inv *sharing.Inventory, numa int) []*pluginapi.Device {
	var topology *pluginapi.TopologyInfo
	if numa >= 0 {
		topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(numa)}}}
	}
	var slots []*pluginapi.Device
	for i := range inv.Devices {
		d := &inv.Devices[i]
		for n := range d.MaxShares {
			slots = append(slots, &pluginapi.Device{ID: string(d.ID) + "-" + strconv.Itoa(n), Health: pluginapi.Healthy, Topology: topology})
		}
	}
	return slots
}
