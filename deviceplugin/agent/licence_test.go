// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

func TestTheLicenceOfAVirtualDeviceIsFollowed(t *testing.T) {
	guest, own := drivertest.T4(0), drivertest.T4(1)
	guest.Virtual = true
	driver := drivertest.New(guest, own)
	driver.Licence(1, node.Licence{}) // nobody asks
	r := run(t, driver, node.HealthRules{}, MonitorConfig{})
	licensed := func(want sharing.Licence) {
		t.Helper()
		r.until("the licence is "+string(want), func() bool {
			d, ok := deviceOf(r.agent.State().Inventory(), guest.UUID)
			return ok && d.Licence == want
		})
	}
	r.healthy(2)
	licensed(sharing.LicenceUnknown)
	driver.Licence(0, node.Licence{})
	licensed(sharing.LicenceMissing)
	driver.Licence(0, node.Licence{Valid: true})
	licensed(sharing.LicenceValid)
	driver.Licence(0, node.Licence{})
	licensed(sharing.LicenceMissing)
	r.healthy(2)
	if d, ok := deviceOf(r.agent.State().Inventory(), own.UUID); !ok || d.Virtual || d.Licence != sharing.LicenceUnknown {
		t.Errorf("the machine's own device is %+v", d)
	}
}

func deviceOf(inv sharing.Inventory, id sharing.DeviceID) (sharing.Device, bool) {
	d, ok := inv.Device(id)
	if !ok {
		return sharing.Device{}, false
	}
	return *d, true
}
