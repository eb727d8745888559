// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"strings"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// BusyByProcess implements driver.Driver: nothing ever computes here.
func (d *Driver) BusyByProcess(id sharing.DeviceID, _ time.Duration) (map[int]float64, error) {
	return map[int]float64{}, d.reach(id)
}

// Load implements driver.Driver. A device has what its processes have, and of partitions it is not
// told.
func (d *Driver) Load(id string) (driver.Load, error) {
	if strings.HasPrefix(id, "MIG-") {
		return driver.Load{}, fmt.Errorf("load of partition %s: %w", id, driver.ErrUnsupported)
	}
	if err := d.reach(sharing.DeviceID(id)); err != nil {
		return driver.Load{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var l driver.Load
	for i := range d.facts {
		if string(d.facts[i].UUID) == id {
			l.Memory = d.facts[i].Memory
		}
	}
	for _, p := range d.processes[sharing.DeviceID(id)] {
		l.Used = l.Used.Plus(p.Memory)
	}
	return l, nil
}
