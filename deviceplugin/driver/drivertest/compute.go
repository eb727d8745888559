// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// ComputeMode implements driver.ComputeModes.
func (d *Driver) ComputeMode(id sharing.DeviceID) (driver.ComputeMode, error) {
	if err := d.reach(id); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.modes[id], nil
}

// SetComputeMode implements driver.ComputeModes.
func (d *Driver) SetComputeMode(id sharing.DeviceID, mode driver.ComputeMode) error {
	if err := d.reach(id); err != nil {
		return err
	}
	if mode < 0 || mode > driver.ExclusiveProcess || mode == 1 {
		return fmt.Errorf("set the compute mode of device %s to %d: invalid argument", id, mode)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.modes == nil {
		d.modes = map[sharing.DeviceID]driver.ComputeMode{}
	}
	d.modes[id] = mode
	return nil
}
