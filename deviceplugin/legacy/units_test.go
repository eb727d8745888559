// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/sharing"
)

func TestUnitsAreNamedAsTheLegacyDevicePluginNamesThem(t *testing.T) {
	inv := sharing.Inventory{Devices: []sharing.Device{{ID: "GPU-a", Healthy: true}, {ID: "GPU-b"}}}
	units := unitDevices(&inv, "memory", func(d *sharing.Device) int64 { return 2 })
	if len(units) != 4 || units[3].GetID() != "GPU-b-memory-1" || units[3].GetHealth() != pluginapi.Healthy {
		t.Errorf("units are %v", units)
	}
}
