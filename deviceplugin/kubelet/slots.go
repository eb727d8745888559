// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Slots are the abstract devices of the count resource. Which device a container gets is the
// scheduler's decision alone, and the kubelet chooses slots without knowing it. A slot therefore
// names a NUMA node only if all devices share it; numa is that node, or -1. With any other hint the
// kubelet would take CPUs from one node, or refuse the pod for good for the lack of them, while its
// device may be at another.
//
// For the same reason a slot is healthy whether or not some device works. A kubelet that starts
// refuses pods for good whose slots are not healthy, unless it sees a container of theirs run, and
// the devices that they were given may all work.
func Slots(names []string, numa int) []*pluginapi.Device {
	var topology *pluginapi.TopologyInfo
	if numa >= 0 {
		topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(numa)}}}
	}
	slots := make([]*pluginapi.Device, 0, len(names))
	for _, name := range names {
		slots = append(slots, &pluginapi.Device{ID: name, Health: pluginapi.Healthy, Topology: topology})
	}
	return slots
}
