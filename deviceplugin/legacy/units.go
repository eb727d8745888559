// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"slices"
	"strconv"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/kubelet"
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

// withHeld are units together with those that live pods hold and that are not among them, because
// their device is hidden, gone, or offered with less by now: a kubelet that starts would fail such
// pods. Beyond maxUnits those that are held come first.
func withHeld(units []*pluginapi.Device, held []kubelet.Held, live func(sharing.Owner) bool) []*pluginapi.Device {
	listed := make(map[string]bool, len(units))
	for _, u := range units {
		listed[u.GetID()] = true
	}
	var missing []*pluginapi.Device
	for _, h := range held {
		for _, name := range h.Slots {
			if live(h.Owner) && !listed[name] {
				listed[name] = true
				missing = append(missing, &pluginapi.Device{ID: name, Health: pluginapi.Healthy})
			}
		}
	}
	all := slices.Concat(missing, units)
	return all[:min(len(all), max(maxUnits, len(missing)))]
}
