// SPDX-License-Identifier: Apache-2.0

package mignode

import (
	"context"
	"errors"
	"fmt"

	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
)

// Entered implements nodeapi.Switcher: a device that will be partitioned after its
// next reset has something left of the mode too.
func (p *Preparer) Entered(_ context.Context, d sharing.Device) (bool, error) {
	current, pending, err := p.cfg.Driver.MIGMode(d.ID)
	if errors.Is(err, ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether device %s is partitioned: %w", d.ID, err)
	}
	return current || pending, nil
}

// Enter implements nodeapi.Switcher.
func (p *Preparer) Enter(ctx context.Context, d sharing.Device) error {
	turn, err := p.seats.take(ctx, d.ID)
	if err != nil {
		return err
	}
	defer turn.give()
	return p.switchOn(d.ID)
}

// switchOn brings a device into the mode, unless it is. It is part of preparing
// too: from Hopper on the mode is a state of the driver, which a reboot ends while
// the pods are still the node's.
func (p *Preparer) switchOn(id sharing.DeviceID) error {
	current, pending, err := p.cfg.Driver.MIGMode(id)
	switch {
	case errors.Is(err, ErrUnsupported):
		return fmt.Errorf("device %s cannot be partitioned: give it another mode in the node configuration: %w", id, err)
	case err != nil:
		return fmt.Errorf("ask whether device %s is partitioned: %w", id, err)
	case current && pending:
		return nil
	}
	return p.set(id, current, true)
}

// set switches partitioning on or off. A card that needs a reset for it is left to
// its administrator: asked for the mode, the driver may reset or unbind the device
// by itself (nvml.h at nvmlDeviceSetMigMode), which fails in virtual machines and
// can disturb others on boards with NVSwitch. NVIDIA's DRA driver does the same
// (kubernetes-sigs/dra-driver-nvidia-gpu#1018). What is only pending is taken back
// without a reset.
func (p *Preparer) set(id sharing.DeviceID, current, on bool) error {
	if current != on {
		free, err := p.cfg.Driver.Resetless(id)
		if err != nil {
			return fmt.Errorf("ask whether the mode of device %s changes without a reset: %w", id, err)
		}
		if !free {
			return p.manual(id, on, ErrResetRequired)
		}
	}
	err := p.cfg.Driver.SetMIGMode(id, on)
	if err == nil {
		p.cfg.Note(id, fmt.Sprintf("switched partitioning (MIG): on is %v", on))
	}
	return p.manual(id, on, err)
}

// Leave implements nodeapi.Switcher: instances that nobody holds are destroyed,
// then partitioning is switched off. A holding is an error, since the caller says
// that there is none.
func (p *Preparer) Leave(ctx context.Context, d sharing.Device) error {
	turn, err := p.seats.take(ctx, d.ID)
	if err != nil {
		return err
	}
	defer turn.give()
	held, err := p.book.others(d.ID, "")
	if err != nil {
		return err
	}
	if len(held) > 0 {
		return fmt.Errorf("device %s cannot leave mode mig: container %s of pod %s holds %s",
			d.ID, held[0].Container, held[0].Owner, describe(held[0].span()))
	}
	current, pending, err := p.cfg.Driver.MIGMode(d.ID)
	if errors.Is(err, ErrUnsupported) || err == nil && !current && !pending {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask whether device %s is partitioned: %w", d.ID, err)
	}
	if err := p.clear(ctx, d.ID); err != nil {
		return err
	}
	return p.set(d.ID, current, false)
}

// clear destroys every instance of a device.
func (p *Preparer) clear(ctx context.Context, id sharing.DeviceID) error {
	all, err := p.cfg.Driver.Instances(id)
	if err != nil {
		return fmt.Errorf("list the instances of device %s: %w", id, err)
	}
	for i := range all {
		err := p.destroy(ctx, id, all[i])
		if errors.Is(err, ErrInUse) {
			return &nodeapi.Manual{Device: id, Why: err.Error(), Do: fmt.Sprintf("end what nvidia-smi shows under Processes on device %s", id)}
		}
		if err != nil {
			return fmt.Errorf("device %s: %w", id, err)
		}
	}
	return nil
}

// manual turns what only an administrator can bring about into what to type.
func (p *Preparer) manual(id sharing.DeviceID, on bool, err error) error {
	word, digit := "off", 0
	if on {
		word, digit = "on", 1
	}
	set := fmt.Sprintf("nvidia-smi -i %s -mig %d", id, digit)
	reset := fmt.Sprintf("%s, then, while nothing uses the device, nvidia-smi -i %s --gpu-reset, or reboot the node", set, id)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrResetRequired):
		return &nodeapi.Manual{Device: id, Why: fmt.Sprintf("switching partitioning (MIG) %s takes effect with a reset", word), Do: reset}
	case errors.Is(err, ErrInUse):
		return &nodeapi.Manual{
			Device: id, Why: fmt.Sprintf("partitioning (MIG) cannot be switched %s while something uses the device", word),
			Do: fmt.Sprintf("end what nvidia-smi shows under Processes, and services such as dcgm and nvidia-persistenced; then it goes on by itself, or: %s", set),
		}
	case errors.Is(err, ErrNoPermission):
		return &nodeapi.Manual{
			Device: id, Why: fmt.Sprintf("the device plugin may not switch partitioning (MIG) %s", word),
			Do: fmt.Sprintf("run it privileged, or on the node as root: %s", reset),
		}
	}
	return fmt.Errorf("switch partitioning (MIG) of device %s %s: %w", id, word, err)
}
