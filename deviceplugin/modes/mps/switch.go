// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Entered implements modes.Switcher.
func (p *Preparer) Entered(_ context.Context, d sharing.Device) (bool, error) {
	defer p.lockDevice(d.ID)()
	return p.hasEntered(d.ID)
}

func (p *Preparer) hasEntered(id sharing.DeviceID) (bool, error) {
	if _, there, err := p.readDeviceRecord(id); there || err != nil {
		return there, err
	}
	names, err := p.cfg.Files.List(p.cfg.Directories)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if name == string(id) {
			return true, nil
		}
	}
	return false, nil
}

// Enter implements modes.Switcher. The daemon is started by the first container.
// Its directories are made here, so that a device is not offered where they cannot be
// bounded.
func (p *Preparer) Enter(_ context.Context, d sharing.Device) error {
	defer p.lockDevice(d.ID)()
	_, err := p.enterMode(&d)
	if err == nil {
		err = p.makeDirectories(p.daemonFor(d.ID))
	}
	if err == nil {
		err = p.boundUnlessUsed(p.daemonFor(d.ID))
	}
	if err != nil {
		return fmt.Errorf("device %s enters mode mps: %w", d.ID, err)
	}
	return nil
}

// enterMode brings the device into the mode: what it was like is remembered, then only
// one process at a time, the MPS server, may have contexts on it.
func (p *Preparer) enterMode(d *sharing.Device) (deviceRecord, error) {
	r, there, err := p.readDeviceRecord(d.ID)
	if err != nil {
		return deviceRecord{}, err
	}
	now, err := p.cfg.Hardware.ComputeMode(d.ID)
	if err != nil {
		return deviceRecord{}, forAdministrator(d, driver.ExclusiveProcess, fmt.Errorf("read the compute mode of device %s: %w", d.ID, err))
	}
	if !there {
		r = deviceRecord{Version: version, Before: now}
	}
	r.MemoryMiB, r.Percentage = max(int64(d.Memory/sharing.MiB), 1), defaultPercentage(d.Cores)
	if err := p.writeDeviceRecord(d.ID, r); err != nil {
		return deviceRecord{}, err
	}
	if now != driver.ExclusiveProcess {
		if err := p.setComputeMode(d, driver.ExclusiveProcess); err != nil {
			return deviceRecord{}, err
		}
	}
	return r, nil
}

// defaultPercentage is the daemon's default for a device that offers this much compute.
func defaultPercentage(cores sharing.Percent) int { return int(min(max(cores, 1), 100)) }

func (p *Preparer) setComputeMode(d *sharing.Device, mode driver.ComputeMode) error {
	if err := p.cfg.Hardware.SetComputeMode(d.ID, mode); err != nil {
		return forAdministrator(d, mode, fmt.Errorf("set the compute mode of device %s to %d: %w", d.ID, mode, err))
	}
	return nil
}

// forAdministrator makes a *modes.Manual of an error about compute modes that only
// an administrator can do something about. That of a vGPU is up to the machine's host.
func forAdministrator(d *sharing.Device, mode driver.ComputeMode, err error) error {
	if !errors.Is(err, driver.ErrNoPermission) && !errors.Is(err, driver.ErrUnsupported) {
		return err
	}
	do := fmt.Sprintf("nvidia-smi -i %s -c %d as root on the node, or give the device another mode", d.ID, mode)
	if d.Virtual {
		do = "it is a vGPU, and nothing on this node changes that: give it mode hami-core or time-slicing in the node configuration"
	}
	return &modes.Manual{Device: d.ID, Why: fmt.Sprintf("its compute mode cannot be set: %v", err), Do: do}
}

// Leave implements modes.Switcher.
func (p *Preparer) Leave(ctx context.Context, dev sharing.Device) error {
	defer p.lockDevice(dev.ID)()
	if there, err := p.hasEntered(dev.ID); err != nil || !there {
		return err
	}
	if err := p.leaveMode(ctx, &dev); err != nil {
		return fmt.Errorf("device %s leaves mode mps: %w", dev.ID, err)
	}
	return nil
}

// leaveMode undoes enterMode and ensureDaemon, last things first. The record goes last, so that
// a failure is tried again.
func (p *Preparer) leaveMode(ctx context.Context, dev *sharing.Device) error {
	id := dev.ID
	r, there, err := p.readDeviceRecord(id)
	if err != nil {
		return err
	}
	if there && r.Wanted {
		r.Wanted = false // nobody is to start it again while it ends
		if err := p.writeDeviceRecord(id, r); err != nil {
			return err
		}
	}
	d := p.daemonFor(id)
	if err := p.quitDaemon(ctx, d); err != nil {
		return err
	}
	if err := p.removeDirectories(d); err != nil {
		return err
	}
	if !there {
		return nil
	}
	now, err := p.cfg.Hardware.ComputeMode(id)
	if err != nil {
		return fmt.Errorf("read the compute mode of device %s: %w", id, err)
	}
	if now == driver.ExclusiveProcess && r.Before != now {
		if err := p.setComputeMode(dev, r.Before); err != nil {
			return err
		}
	}
	return p.cfg.Files.Remove(filepath.Clean(p.devicePath(id)))
}
