// SPDX-License-Identifier: Apache-2.0

package nvmlfake

import (
	"slices"

	"deviceshare/deviceplugin/nvml"
	"deviceshare/sharing"
)

// Occupy says which processes use a device from now on.
func (d *Driver) Occupy(id sharing.DeviceID, processes ...nvml.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.processes == nil {
		d.processes = map[sharing.DeviceID][]nvml.Process{}
	}
	d.processes[id] = slices.Clone(processes)
}

// MemoryByProcess implements nvml.Driver.
func (d *Driver) MemoryByProcess(id sharing.DeviceID) ([]nvml.Process, error) {
	if err := d.reach(id); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.processes[id]), nil
}
