// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"context"
	"errors"
	"fmt"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Entered implements modes.Switcher: a device that will be partitioned after its
// next reset has something left of the mode too.
func (p *Preparer) Entered(_ context.Context, d sharing.Device) (bool, error) {
	current, pending, err := p.cfg.Driver.MIGMode(d.ID)
	if errors.Is(err, driver.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether device %s is partitioned: %w", d.ID, err)
	}
	return current || pending, nil
}

// Enter implements modes.Switcher.
func (p *Preparer) Enter(ctx context.Context, d sharing.Device) error {
	turn, err := p.seats.lockDevice(ctx, d.ID)
	if err != nil {
		return err
	}
	defer turn.unlockDevice()
	if err := p.switchOn(d.ID); err != nil {
		return err
	}
	return p.book.recordEntered(d.ID)
}

// switchOn brings a device into the mode, unless it is in it. Preparing does this too:
// from Hopper on the mode is a state of the driver, which is lost in a reboot although
// the pods stay on the node.
func (p *Preparer) switchOn(id sharing.DeviceID) error {
	current, pending, err := p.cfg.Driver.MIGMode(id)
	switch {
	case errors.Is(err, driver.ErrUnsupported):
		return fmt.Errorf("device %s cannot be partitioned: give it another mode in the node configuration: %w", id, err)
	case err != nil:
		return fmt.Errorf("ask whether device %s is partitioned: %w", id, err)
	case current && pending:
		return nil
	}
	return p.setMIGMode(id, current, true)
}

// setMIGMode switches partitioning on or off. A card that needs a reset for it is left to
// its administrator: asked for the mode, the driver may reset or unbind the device
// by itself (nvml.h at nvmlDeviceSetMigMode), which fails in virtual machines and
// can disturb other devices on boards with NVSwitch. NVIDIA's DRA driver does the same
// (kubernetes-sigs/dra-driver-nvidia-gpu#1018). What is only pending is taken back
// without a reset.
func (p *Preparer) setMIGMode(id sharing.DeviceID, current, on bool) error {
	if err := p.requireSwitchable(id, current, on); err != nil {
		return err
	}
	err := p.cfg.Driver.SetMIGMode(id, on)
	if err == nil {
		p.cfg.Note(id, fmt.Sprintf("switched partitioning (MIG): on is %v", on))
	}
	return p.wrapSwitchError(id, on, err)
}

// requireSwitchable says why only an administrator can switch partitioning on or off.
func (p *Preparer) requireSwitchable(id sharing.DeviceID, current, on bool) error {
	if current == on {
		return nil
	}
	free, err := p.cfg.Driver.Resetless(id)
	if err != nil {
		return fmt.Errorf("ask whether the mode of device %s changes without a reset: %w", id, err)
	}
	if !free {
		return p.wrapSwitchError(id, on, driver.ErrResetRequired)
	}
	return nil
}

// Leave implements modes.Switcher: instances that nobody holds are destroyed,
// then partitioning is switched off. Nothing is destroyed if only an administrator can
// switch it off, or if the instances may be somebody else's. A holding is an error,
// since the caller says that there is none.
func (p *Preparer) Leave(ctx context.Context, d sharing.Device) error {
	turn, err := p.seats.lockDevice(ctx, d.ID)
	if err != nil {
		return err
	}
	defer turn.unlockDevice()
	held, err := p.book.listHoldings(d.ID, "")
	if err != nil {
		return err
	}
	if len(held) > 0 {
		return fmt.Errorf("device %s cannot leave mode mig: container %s of pod %s holds %s",
			d.ID, held[0].Container, held[0].Owner, driver.DescribePlace(held[0].heldPartition()))
	}
	current, pending, err := p.cfg.Driver.MIGMode(d.ID)
	if errors.Is(err, driver.ErrUnsupported) || err == nil && !current && !pending {
		return p.book.recordLeft(d.ID)
	}
	if err != nil {
		return fmt.Errorf("ask whether device %s is partitioned: %w", d.ID, err)
	}
	all, err := p.cfg.Driver.Instances(d.ID)
	if err != nil {
		return fmt.Errorf("list the instances of device %s: %w", d.ID, err)
	}
	if err := p.requireOwnInstances(d, all); err != nil {
		return err
	}
	if err := p.requireSwitchable(d.ID, current, false); err != nil {
		return addDestroyStep(err, all)
	}
	if err := p.destroyInstances(ctx, d.ID, all); err != nil {
		return err
	}
	if err := p.setMIGMode(d.ID, current, false); err != nil {
		return err
	}
	return p.book.recordLeft(d.ID)
}

// requireOwnInstances refuses to destroy instances on a device that was never brought into the mode
// here and leaves it only because nobody chose a mode for it: somebody else made them.
func (p *Preparer) requireOwnInstances(d sharing.Device, all []driver.Instance) error {
	if len(all) == 0 || p.cfg.Given(d.ID) {
		return nil
	}
	ours, err := p.book.hasEntered(d.ID)
	if ours || err != nil {
		return err
	}
	return &modes.Manual{
		Device: d.ID,
		Why:    fmt.Sprintf("it has instances that were not made here (%s), and the node configuration gives it no mode", describeInstances(all)),
		Do: fmt.Sprintf("in the node configuration give it a mode, which gives them up, or list it under filterdevices, which leaves it to who made them; or destroy them: %s",
			destroyAllCommand(d.ID)),
	}
}

// destroyAllCommand is the command with which an administrator destroys all instances.
func destroyAllCommand(id sharing.DeviceID) string {
	return fmt.Sprintf("nvidia-smi mig -i %s -dci, then nvidia-smi mig -i %s -dgi", id, id)
}

// addDestroyStep adds to the instructions of an administrator to destroy the instances first.
func addDestroyStep(err error, all []driver.Instance) error {
	var manual *modes.Manual
	if len(all) == 0 || !errors.As(err, &manual) {
		return err
	}
	return &modes.Manual{Device: manual.Device, Why: manual.Why, Do: destroyAllCommand(manual.Device) + ", then " + manual.Do}
}

func (p *Preparer) destroyInstances(ctx context.Context, id sharing.DeviceID, all []driver.Instance) error {
	for i := range all {
		err := p.destroyInstance(ctx, id, all[i])
		if errors.Is(err, driver.ErrInUse) {
			return &modes.Manual{Device: id, Why: err.Error(), Do: fmt.Sprintf("end what nvidia-smi shows under Processes on device %s", id)}
		}
		if err != nil {
			return fmt.Errorf("device %s: %w", id, err)
		}
	}
	return nil
}

// wrapSwitchError turns an error that only an administrator can resolve into a *modes.Manual
// with the command to type.
func (p *Preparer) wrapSwitchError(id sharing.DeviceID, on bool, err error) error {
	word, digit := "off", 0
	if on {
		word, digit = "on", 1
	}
	set := fmt.Sprintf("nvidia-smi -i %s -mig %d", id, digit)
	reset := fmt.Sprintf("%s, then, while nothing uses the device, nvidia-smi -i %s --gpu-reset, or reboot the node", set, id)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrResetRequired):
		return &modes.Manual{Device: id, Why: fmt.Sprintf("switching partitioning (MIG) %s takes effect with a reset", word), Do: reset}
	case errors.Is(err, driver.ErrInUse):
		clients, _ := p.cfg.Driver.Clients(id) // for people
		return &modes.Manual{
			Device: id, Why: fmt.Sprintf("partitioning (MIG) cannot be switched %s while something uses the device%s", word, openIn(clients)),
			Do: fmt.Sprintf("end what nvidia-smi shows under Processes, and services such as dcgm and nvidia-persistenced; then it goes on by itself, or: %s", set),
		}
	case errors.Is(err, driver.ErrNoPermission):
		return &modes.Manual{
			Device: id, Why: fmt.Sprintf("the device plugin may not switch partitioning (MIG) %s", word),
			Do: fmt.Sprintf("run it privileged, or on the node as root: %s", reset),
		}
	}
	return fmt.Errorf("switch partitioning (MIG) of device %s %s: %w", id, word, err)
}
