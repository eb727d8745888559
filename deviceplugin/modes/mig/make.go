// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// attempts is how often a call is tried that the driver refuses as "in use": a killed
// process needs a moment to end, and a GPU instance can be in use for about a second
// after its last compute instance was destroyed.
const attempts = 6

// ensureInstance creates an instance at exactly the wanted place, or adopts the one that is there.
// The caller has the turn of the device and has written the holding.
func (p *Preparer) ensureInstance(ctx context.Context, want *holding, others []holding) (driver.Instance, error) {
	have, err := p.cfg.Driver.Instances(want.Device)
	if err != nil {
		return driver.Instance{}, fmt.Errorf("list its instances: %w", err)
	}
	for i := range have {
		if !want.matchesInstance(&have[i]) {
			continue
		}
		if err := p.takeOver(ctx, want, &have[i]); err != nil {
			return driver.Instance{}, err
		}
		return p.ensureComputeInstance(ctx, want.Device, have[i])
	}
	for i := range have {
		if !have[i].Span().Overlaps(want.heldPartition()) {
			continue
		}
		// Admission has seen that nobody holds it, unless the driver says another size
		// than the holding.
		if k := slices.IndexFunc(others, func(o holding) bool { return o.matchesInstance(&have[i]) }); k >= 0 {
			return driver.Instance{}, &conflictError{want: want, by: &others[k]}
		}
		if err := p.destroyInstance(ctx, want.Device, have[i]); err != nil {
			return driver.Instance{}, fmt.Errorf("%s cannot be made, something is in its place: %w", driver.DescribePlace(want.heldPartition()), err)
		}
	}
	gi, err := p.createGPUInstance(ctx, want, others)
	if err != nil {
		return driver.Instance{}, err
	}
	in := driver.Instance{Profile: want.Profile, Start: want.Start, Size: want.Size, GI: gi}
	p.cfg.Note(want.Device, "made "+in.String())
	return p.ensureComputeInstance(ctx, want.Device, in)
}

// takeOver makes sure that no process uses an instance which was not made for this
// container. The driver lists only processes of our own namespace, but it never destroys
// a compute instance that a process uses. So the compute instance is made anew for each
// owner.
func (p *Preparer) takeOver(ctx context.Context, want *holding, in *driver.Instance) error {
	if in.Whole() && want.Made.UUID == in.Compute[0].UUID {
		return nil
	}
	if err := p.waitUntilUnused(ctx, want, in); err != nil {
		return err
	}
	return p.destroyCompute(ctx, want.Device, in)
}

// waitUntilUnused waits until nobody uses an instance that was not made for this container
// and is about to be: a process that somebody started by hand, or that outlives its
// pod, would share the partition unseen. If the driver cannot list processes, the
// instance counts as unused.
func (p *Preparer) waitUntilUnused(ctx context.Context, want *holding, in *driver.Instance) error {
	err := p.retryWhileInUse(ctx, func() error {
		pids, err := p.cfg.Driver.Processes(want.Device, in.GI)
		if err != nil || len(pids) == 0 {
			return nil
		}
		return fmt.Errorf("it is used %s: %w", p.describeUsers(want.Device, in), driver.ErrInUse)
	})
	if err != nil {
		return fmt.Errorf("%s is there and cannot be taken over: %w", in.String(), err)
	}
	return nil
}

// createGPUInstance makes the GPU instance. If the driver refuses although the place is empty,
// another limited resource is used up, such as media engines: then the instances that
// nobody holds are destroyed.
func (p *Preparer) createGPUInstance(ctx context.Context, want *holding, others []holding) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	gi, err := p.cfg.Driver.CreateGPUInstance(want.Device, want.Profile, want.Start)
	if !errors.Is(err, driver.ErrInsufficient) {
		return gi, wrapMakeError(want, err)
	}
	idle, all, listed := p.listIdleInstances(want.Device, others)
	if listed != nil {
		return 0, listed
	}
	for i := range idle {
		if err := p.destroyInstance(ctx, want.Device, idle[i]); err != nil {
			return 0, fmt.Errorf("%s cannot be made beside what exists: %w", driver.DescribePlace(want.heldPartition()), err)
		}
	}
	if len(idle) > 0 {
		gi, err = p.cfg.Driver.CreateGPUInstance(want.Device, want.Profile, want.Start)
	}
	if errors.Is(err, driver.ErrInsufficient) {
		err = fmt.Errorf("the device has %s: %w", describeInstances(all), err)
	}
	return gi, wrapMakeError(want, err)
}

// wrapMakeError adds to an error which instance could not be made.
func wrapMakeError(want *holding, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("make %s: %w", driver.DescribePlace(want.heldPartition()), err)
}

// listIdleInstances returns the instances that nobody holds, and all instances.
func (p *Preparer) listIdleInstances(id sharing.DeviceID, held []holding) (idle, all []driver.Instance, err error) {
	all, err = p.cfg.Driver.Instances(id)
	if err != nil {
		return nil, nil, fmt.Errorf("list its instances: %w", err)
	}
	for i := range all {
		used := false
		for j := range held {
			used = used || held[j].matchesInstance(&all[i])
		}
		if !used {
			idle = append(idle, all[i])
		}
	}
	return idle, all, nil
}

// ensureComputeInstance gives an instance the one compute instance that spans it. Any other
// shape, made by hand or half made, is taken apart first, which the driver refuses
// while somebody uses it.
func (p *Preparer) ensureComputeInstance(ctx context.Context, id sharing.DeviceID, in driver.Instance) (driver.Instance, error) {
	if in.Whole() {
		return in, nil
	}
	if err := p.destroyCompute(ctx, id, &in); err != nil {
		return driver.Instance{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Instance{}, err
	}
	c, err := p.cfg.Driver.CreateComputeInstance(id, in.GI)
	if err != nil {
		return driver.Instance{}, fmt.Errorf("make the compute instance of %s: %w", in.String(), err)
	}
	in.Compute = []driver.ComputeInstance{c}
	return in, nil
}

// destroyInstance destroys an instance that nobody holds, after its compute instances. What
// cannot be destroyed stays in the driver's list and is tried again when its space is
// wanted.
func (p *Preparer) destroyInstance(ctx context.Context, id sharing.DeviceID, in driver.Instance) error {
	if err := p.destroyCompute(ctx, id, &in); err != nil {
		return err
	}
	err := p.retryWhileInUse(ctx, func() error {
		err := p.cfg.Driver.DestroyGPUInstance(id, in.GI)
		if err != nil {
			return err
		}
		return p.requireGone(id, in.GI)
	})
	if err == nil {
		p.cfg.Note(id, "destroyed "+in.String()+", which nobody held")
	}
	return p.wrapDestroyError(id, &in, err)
}

// requireGone reports a GPU instance that is there although it was destroyed: drivers
// have answered success and kept it, see NVIDIA/go-nvml#146.
func (p *Preparer) requireGone(id sharing.DeviceID, gi int) error {
	all, err := p.cfg.Driver.Instances(id)
	if err != nil {
		return fmt.Errorf("list the instances of device %s: %w", id, err)
	}
	for i := range all {
		if all[i].GI == gi {
			return fmt.Errorf("the driver destroyed it and lists it still: %w", driver.ErrInUse)
		}
	}
	return nil
}

func (p *Preparer) destroyCompute(ctx context.Context, id sharing.DeviceID, in *driver.Instance) error {
	for _, c := range in.Compute {
		err := p.retryWhileInUse(ctx, func() error { return p.cfg.Driver.DestroyComputeInstance(id, in.GI, c.CI) })
		if err := p.wrapDestroyError(id, in, err); err != nil {
			return err
		}
	}
	in.Compute = nil
	return nil
}

// retryWhileInUse repeats a call as long as the driver refuses it as "in use". An object that is
// not there any more counts as success.
func (p *Preparer) retryWhileInUse(ctx context.Context, do func() error) error {
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := do()
		switch {
		case errors.Is(err, driver.ErrNotFound):
			return nil
		case !errors.Is(err, driver.ErrInUse) || n == attempts:
			return err
		}
		if stop := p.cfg.Pause(ctx, n); stop != nil {
			return fmt.Errorf("%w: %w", err, stop)
		}
	}
}

// wrapDestroyError is the error about an instance that could not be destroyed, with what uses it.
func (p *Preparer) wrapDestroyError(id sharing.DeviceID, in *driver.Instance, err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, driver.ErrInUse) {
		return fmt.Errorf("destroy %s: %w", in.String(), err)
	}
	return fmt.Errorf("destroy %s: it is used %s; it is tried again when its space is wanted again: %w", in.String(), p.describeUsers(id, in), err)
}
