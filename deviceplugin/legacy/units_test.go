// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
)

func TestUnitsAreNamedAsTheLegacyDevicePluginNamesThem(t *testing.T) {
	inv := sharing.Inventory{Devices: []sharing.Device{{ID: "GPU-a", Healthy: true}, {ID: "GPU-b"}}}
	units := unitDevices(&inv, "memory", func(d *sharing.Device) int64 { return 2 })
	if len(units) != 4 || units[3].GetID() != "GPU-b-memory-1" || units[3].GetHealth() != pluginapi.Healthy {
		t.Errorf("units are %v", units)
	}
}

func TestUnitsThatPodsHoldStayWhateverBecameOfTheirDevice(t *testing.T) {
	inv := sharing.Inventory{Devices: []sharing.Device{{ID: "GPU-a"}}}
	units := unitDevices(&inv, "memory", func(*sharing.Device) int64 { return 2 })
	held := []kubelet.Held{
		{Owner: "live", Slots: []string{"GPU-a-memory-1", "GPU-a-memory-7", "GPU-gone-memory-0"}}, {Owner: "ended", Slots: []string{"GPU-gone-memory-1"}},
	}
	names := map[string]bool{}
	for _, u := range withHeld(units, held, func(o sharing.Owner) bool { return o == "live" }) {
		names[u.GetID()] = u.GetHealth() == pluginapi.Healthy
	}
	if len(names) != 4 || !names["GPU-a-memory-0"] || !names["GPU-a-memory-1"] || !names["GPU-a-memory-7"] || !names["GPU-gone-memory-0"] {
		t.Errorf("units are %v", names)
	}
}
