// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"context"
	"fmt"
	"strings"
	"time"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Config is what a Preparer works with.
type Config struct {
	Files host.Files
	// Root is the directory of the holdings, an absolute path.
	Root   string
	Driver driver.Partitions
	// Patience is how long a container waits for a place that its former owner has not
	// released yet; 0 refuses at once. It must leave time for making an
	// instance within the 30 s that the kubelet gives.
	Patience time.Duration
	// Pause waits before the n-th repetition, from 1 on, of a call that the driver
	// refused as "in use", and ends with ctx. Nil is a backoff that doubles from 100 ms.
	Pause func(ctx context.Context, n int) error
	// Given reports whether somebody chose the mode of the device, so that it is not
	// the default; nil is always. It is asked before instances are destroyed that
	// existed before the device was brought into the mode here.
	Given func(id sharing.DeviceID) bool
	// Note is called after each change of the hardware, for the log; nil is not called.
	Note func(id sharing.DeviceID, what string)
}

// Preparer implements modes.Switcher. Its state is on the host and in the hardware; in
// memory it only keeps whose turn it is on a device.
type Preparer struct {
	cfg   Config
	book  holdingStore
	seats deviceLocks
}

var (
	_ modes.Switcher    = (*Preparer)(nil)
	_ modes.OwnerLister = (*Preparer)(nil)
)

// New returns a preparer.
func New(cfg Config) *Preparer {
	if cfg.Pause == nil {
		cfg.Pause = waitBackoff
	}
	if cfg.Given == nil {
		cfg.Given = func(sharing.DeviceID) bool { return true }
	}
	if cfg.Note == nil {
		cfg.Note = func(sharing.DeviceID, string) {}
	}
	return &Preparer{cfg: cfg, book: holdingStore{files: cfg.Files, root: cfg.Root}}
}

// waitBackoff doubles from 100 ms on.
func waitBackoff(ctx context.Context, n int) error {
	timer := time.NewTimer(50 * time.Millisecond << min(n, 6))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Mode implements modes.Preparer.
func (p *Preparer) Mode() sharing.Mode { return sharing.MIG }

// Prepare implements modes.Preparer. The injection names MIG devices, one per
// device of the claim and in its order.
func (p *Preparer) Prepare(ctx context.Context, c modes.Claim) (modes.Injection, error) {
	if err := c.Check(p.Mode()); err != nil {
		return modes.Injection{}, err
	}
	if strings.Contains(string(c.Owner), "_") {
		return modes.Injection{}, fmt.Errorf("claim %s: the owner %q holds an underscore, which ends the owner in a file's name", c.ID, c.Owner)
	}
	wanted, err := holdingsFor(&c)
	if err != nil {
		return modes.Injection{}, err
	}
	in := modes.Injection{Devices: make([]sharing.DeviceID, 0, len(wanted))}
	for i := range wanted {
		uuid, err := p.preparePartition(ctx, &wanted[i])
		if err != nil {
			return modes.Injection{}, fmt.Errorf("prepare claim %s: device %s: %w", c.ID, wanted[i].Device, err)
		}
		in.Devices = append(in.Devices, sharing.DeviceID(uuid))
	}
	return in, nil
}

// preparePartition makes one partition for a container and returns its MIG device.
func (p *Preparer) preparePartition(ctx context.Context, want *holding) (string, error) {
	turn, others, err := p.waitForPlace(ctx, want)
	if err != nil {
		return "", err
	}
	defer turn.unlockDevice()
	if have, ok := p.book.storedHolding(want); ok && have.heldPartition() == want.heldPartition() {
		want.Made = have.Made // until it is known to have changed
	}
	if err := p.book.writeHolding(want); err != nil {
		return "", err
	}
	if err := p.switchOn(want.Device); err != nil {
		return "", err
	}
	// Also a device that was in the mode before this was noted.
	if err := p.book.recordEntered(want.Device); err != nil {
		return "", err
	}
	in, err := p.ensureInstance(ctx, want, others)
	if err != nil {
		return "", err
	}
	if before := want.Made.UUID; before != "" && before != in.Compute[0].UUID {
		p.cfg.Note(want.Device, fmt.Sprintf("container %s of pod %s had %s, which is gone, and now has %s in its place", want.Container, want.Owner, before, in.Compute[0].UUID))
	}
	want.Made = made{GI: in.GI, CI: in.Compute[0].CI, UUID: in.Compute[0].UUID}
	if err := p.book.writeHolding(want); err != nil {
		return "", err
	}
	return want.Made.UUID, nil
}

// conflictError says who holds what a container needs.
type conflictError struct {
	want, by *holding
}

func (t *conflictError) Error() string {
	when := "it is free when that pod is gone"
	if t.isSamePod() {
		when = "of one pod, only containers that never run together may have one, and then the same; its placement is wrong"
	}
	return fmt.Sprintf("%s is held by container %s of pod %s (%s): one partition has one owner; %s",
		driver.DescribePlace(t.want.heldPartition()), t.by.Container, t.by.Owner, driver.DescribePlace(t.by.heldPartition()), when)
}

// isSamePod reports that another container of the same pod holds the place, which waiting does
// not change.
func (t *conflictError) isSamePod() bool { return t.want.Owner == t.by.Owner }

// waitForPlace waits until a container may hold its partition, at most for the configured
// patience: the pod that had it before may be ending. It returns with the turn of the
// device taken, and with what others hold there.
func (p *Preparer) waitForPlace(ctx context.Context, want *holding) (*deviceLock, []holding, error) {
	patience := time.NewTimer(p.cfg.Patience)
	defer patience.Stop()
	for {
		turn, err := p.seats.lockDevice(ctx, want.Device)
		if err != nil {
			return nil, nil, err
		}
		others, err := p.book.listHoldings(want.Device, holdingFileName(want.Owner, want.Container))
		refusal := findConflict(want, others)
		if err == nil && refusal == nil {
			return turn, others, nil
		}
		freed := turn.freed
		turn.unlockDevice()
		switch {
		case err != nil:
			return nil, nil, err
		case refusal.isSamePod():
			return nil, nil, &modes.Misplaced{Why: refusal.Error()}
		}
		select {
		case <-freed:
		case <-patience.C:
			return nil, nil, &modes.Misplaced{Why: refusal.Error()}
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w: %w", refusal, ctx.Err())
		}
	}
}

// findConflict returns the holding that conflicts with the wanted one; nil if none does.
func findConflict(want *holding, others []holding) *conflictError {
	for i := range others {
		if want.conflictsWith(&others[i]) {
			return &conflictError{want: want, by: &others[i]}
		}
	}
	return nil
}

// Unprepare implements modes.Preparer: the owner holds nothing any more. Its instances
// stay for the next container that wants them.
func (p *Preparer) Unprepare(ctx context.Context, o sharing.Owner) error {
	devices, err := p.book.devicesHeldBy(o)
	if err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	for _, id := range devices {
		if err := p.unprepareDevice(ctx, id, o); err != nil {
			return fmt.Errorf("unprepare owner %s: %w", o, err)
		}
	}
	return nil
}

func (p *Preparer) unprepareDevice(ctx context.Context, id sharing.DeviceID, o sharing.Owner) error {
	turn, err := p.seats.lockDevice(ctx, id)
	if err != nil {
		return err
	}
	defer turn.unlockDevice()
	if err := p.book.removeHoldings(id, o); err != nil {
		return err
	}
	turn.wakeWaiters()
	return nil
}

// Owners lists whoever holds something, so that a restarted device plugin can
// take back what a lost checkpoint no longer names.
func (p *Preparer) Owners() ([]sharing.Owner, error) {
	owners, err := p.book.listOwners()
	if err != nil {
		return nil, fmt.Errorf("list owners of partitions: %w", err)
	}
	return owners, nil
}
