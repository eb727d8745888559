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

// cards builds the hardware behind the devices that can be partitioned. The mode
// of an A100 or A30 changes with a reset only.
func cards(facts []node.Facts) *migtest.Hardware {
	var all []migtest.Card
	for i := range facts {
		f := &facts[i]
		if f.MIG.Capable {
			all = append(all, migtest.Card{
				ID: f.UUID, MIG: sharing.Partitioning{Slices: f.MIG.Slices, Profiles: f.MIG.Profiles},
				Resetless: !strings.Contains(f.Model, "A100") && !strings.Contains(f.Model, "A30"),
			})
		}
	}
	h := migtest.New(all...)
	for i := range facts {
		if facts[i].MIG.Capable {
			h.Switch(facts[i].UUID, facts[i].MIG.Enabled)
		}
	}
	return h
}

// Cards is the hardware behind the devices that can be partitioned, for tests that
// switch, use or reboot it.
func (d *Driver) Cards() *migtest.Hardware { return d.cards }

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

// MIGMode implements driver.Partitions.
func (d *Driver) MIGMode(id sharing.DeviceID) (current, pending bool, err error) {
	if err := d.reach(id); err != nil {
		return false, false, err
	}
	return d.cards.MIGMode(id)
}

// Resetless implements driver.Partitions.
func (d *Driver) Resetless(id sharing.DeviceID) (bool, error) {
	if err := d.reach(id); err != nil {
		return false, err
	}
	return d.cards.Resetless(id)
}

// SetMIGMode implements driver.Partitions.
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
	return d.cards.SetMIGMode(id, on)
}

// Instances implements driver.Partitions.
func (d *Driver) Instances(id sharing.DeviceID) ([]driver.Instance, error) {
	if err := d.reach(id); err != nil {
		return nil, err
	}
	return d.cards.Instances(id)
}

// CreateGPUInstance implements driver.Partitions.
func (d *Driver) CreateGPUInstance(id sharing.DeviceID, profile string, start int) (int, error) {
	if err := d.reach(id); err != nil {
		return 0, err
	}
	return d.cards.CreateGPUInstance(id, profile, start)
}

// CreateComputeInstance implements driver.Partitions.
func (d *Driver) CreateComputeInstance(id sharing.DeviceID, gi int) (driver.ComputeInstance, error) {
	if err := d.reach(id); err != nil {
		return driver.ComputeInstance{}, err
	}
	return d.cards.CreateComputeInstance(id, gi)
}

// DestroyComputeInstance implements driver.Partitions.
func (d *Driver) DestroyComputeInstance(id sharing.DeviceID, gi, ci int) error {
	if err := d.reach(id); err != nil {
		return err
	}
	return d.cards.DestroyComputeInstance(id, gi, ci)
}

// DestroyGPUInstance implements driver.Partitions.
func (d *Driver) DestroyGPUInstance(id sharing.DeviceID, gi int) error {
	if err := d.reach(id); err != nil {
		return err
	}
	return d.cards.DestroyGPUInstance(id, gi)
}

// Processes implements driver.Partitions.
func (d *Driver) Processes(id sharing.DeviceID, gi int) ([]int, error) {
	if err := d.reach(id); err != nil {
		return nil, err
	}
	return d.cards.Processes(id, gi)
}

// Clients implements driver.Partitions.
func (d *Driver) Clients(id sharing.DeviceID) ([]driver.Client, error) {
	if err := d.reach(id); err != nil {
		return nil, err
	}
	return d.cards.Clients(id)
}

// MIGDevice implements driver.Driver.
func (d *Driver) MIGDevice(uuid string) (driver.MIGDevice, error) {
	id, gi, ci, ok := d.cards.Locate(uuid)
	if !ok {
		return driver.MIGDevice{}, fmt.Errorf("locate MIG device %s: %w", uuid, driver.ErrNotFound)
	}
	if err := d.reach(id); err != nil {
		return driver.MIGDevice{}, err
	}
	i := slices.IndexFunc(d.facts, func(f node.Facts) bool { return f.UUID == id })
	return driver.MIGDevice{Parent: id, Minor: d.facts[i].Minor, GI: gi, CI: ci}, nil
}
