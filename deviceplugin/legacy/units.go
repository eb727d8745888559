// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"strconv"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/sharing"
)

// unitDevices are the kubelet devices of an amount offered one by one, named as the legacy
// device plugin names them: kind is "memory" or "core". of is the amount per
// device of the inventory. All are healthy, for the reason that kubelet.Slots gives.
func unitDevices(inv *sharing.Inventory, kind string, of func(*sharing.Device) int64) []*pluginapi.Device {
	var units []*pluginapi.Device
	for i := range inv.Devices {
		d := &inv.Devices[i]
		prefix := string(d.ID) + "-" + kind + "-"
		for n := range of(d) {
			units = append(units, &pluginapi.Device{ID: prefix + strconv.FormatInt(n, 10), Health: pluginapi.Healthy})
		}
	}
	return units
}
