// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"slices"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// Occupy says which processes use a device from now on.
func (d *Driver) Occupy(id sharing.DeviceID, processes ...driver.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.processes == nil {
		d.processes = map[sharing.DeviceID][]driver.Process{}
	}
	d.processes[id] = slices.Clone(processes)
}

// MemoryByProcess implements driver.Driver.
func (d *Driver) MemoryByProcess(id sharing.DeviceID) ([]driver.Process, error) {
	if err := d.reach(id); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.processes[id]), nil
}
