// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/migtest"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// buildCards puts the hardware behind the devices that can be partitioned. The mode
// of an A100 or A30 changes with a reset only.
func (d *Driver) buildCards() {
	var all []migtest.Card
	for i := range d.facts {
		f := &d.facts[i]
		if f.MIG.Capable {
			all = append(all, migtest.Card{
				ID: f.UUID, MIG: sharing.Partitioning{Slices: f.MIG.Slices, Profiles: f.MIG.Profiles}, Enabled: f.MIG.Enabled,
				Resetless: !strings.Contains(f.Model, "A100") && !strings.Contains(f.Model, "A30"),
			})
		}
	}
	d.Build(all...)
}

// reach reports what keeps a device from answering. Whether somebody has the driver
// open is not among it, see driver.Driver.
func (d *Driver) reach(id sharing.DeviceID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.facts, func(f node.Facts) bool { return f.UUID == id })
	switch {
	case d.missing != nil:
		return fmt.Errorf("%w: %w", driver.ErrNoDriver, d.missing)
	case i < 0:
		return fmt.Errorf("find device %s: %w", id, driver.ErrNotFound)
	case d.lost[i]:
		return fmt.Errorf("device %s: %w", id, driver.ErrLost)
	}
	return nil
}

// SetMIGMode implements driver.Partitions. Watches are interrupted, as with the real driver.
func (d *Driver) SetMIGMode(id sharing.DeviceID, on bool) error {
	if err := d.reach(id); err != nil {
		return err
	}
	d.mu.Lock()
	for _, w := range d.watches {
		select {
		case w.missed <- struct{}{}:
		default:
		}
	}
	d.mu.Unlock()
	return d.Hardware.SetMIGMode(id, on)
}

// MIGDevice implements driver.Driver.
func (d *Driver) MIGDevice(uuid string) (driver.MIGDevice, error) {
	id, gi, ci, ok := d.Locate(uuid)
	if !ok {
		return driver.MIGDevice{}, fmt.Errorf("locate MIG device %s: %w", uuid, driver.ErrNotFound)
	}
	if err := d.reach(id); err != nil {
		return driver.MIGDevice{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.facts, func(f node.Facts) bool { return f.UUID == id })
	return driver.MIGDevice{Parent: id, Minor: d.facts[i].Minor, GI: gi, CI: ci}, nil
}
