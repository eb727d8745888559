// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// worker changes one device. Its fields belong to its goroutine but for look.
type worker struct {
	m    *Mover
	id   sharing.DeviceID
	look chan struct{}
	done func() // told once, after the first look

	failed time.Time // when the last attempt failed
	unsure bool      // the last look or step met an error that passes
}

func newWorker(m *Mover, id sharing.DeviceID) *worker {
	return &worker{m: m, id: id, look: make(chan struct{}, 1), done: func() {}}
}

func (w *worker) run(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			w.done()
			return
		case <-w.look:
		case <-retry.C:
		}
		w.reconcileDevice(ctx)
		w.done()
		w.done = func() {}
		if w.unsure {
			retry.Reset(w.m.first)
		} else if steps := w.planSteps(); len(steps) > 0 && steps[0].Attempts > 0 {
			retry.Reset(time.Until(w.retryTime(&steps[0])))
		}
	}
}

func (w *worker) planSteps() []node.Step {
	return slices.DeleteFunc(node.Plan(w.m.cfg.Agent.State()), func(s node.Step) bool {
		return s.Kind == node.TakeBack || s.Device != w.id
	})
}

func (w *worker) retryTime(s *node.Step) time.Time { return w.failed.Add(w.m.retryDelay(s)) }

func (w *worker) reconcileDevice(ctx context.Context) {
	w.unsure = false
	state := w.m.cfg.Agent.State()
	devices := state.Changeable()
	i := slices.IndexFunc(devices, func(d sharing.Device) bool { return d.ID == w.id })
	if i < 0 {
		return
	}
	steps := w.inspectDevice(ctx, &devices[i])
	if len(steps) == 0 || steps[0].Attempts > 0 && time.Now().Before(w.retryTime(&steps[0])) {
		return
	}
	d := devices[i]
	d.Mode = steps[0].Wanted // it may have been edited since
	w.runSteps(ctx, &d, steps)
}

// inspectDevice looks at the device and returns the steps to take. It holds the lock of the
// device from the look to the new state: what is recorded before is seen here, and
// what comes after sees that the device is changing.
func (w *worker) inspectDevice(ctx context.Context, d *sharing.Device) []node.Step {
	unlock := w.m.cfg.Devices.lockKeys(string(d.ID))
	defer unlock()
	holders := w.m.cfg.Holders.Holders(d.ID)
	entered, err := w.enteredModes(ctx, d, holders)
	switch {
	case err == nil:
		w.m.cfg.Agent.Send(node.Looked{Device: d.ID, Entered: entered, Holders: holders})
	case w.notePassing(err):
		return nil
	default:
		w.failed = time.Now()
		w.m.cfg.Failed(d.Mode, false)
		w.m.cfg.Agent.Send(node.LookFailed{Device: d.ID, Why: err.Error()})
	}
	return slices.DeleteFunc(w.planSteps(), func(s node.Step) bool { return s.Kind != node.Act })
}

// enteredModes finds out in which modes the device is. Where the holders decide alone it
// asks nobody.
func (w *worker) enteredModes(ctx context.Context, d *sharing.Device, holders []node.Holder) ([]sharing.Mode, error) {
	unrecorded := func(h node.Holder) bool { return h.Mode == "" }
	if len(holders) > 0 && !slices.ContainsFunc(holders, unrecorded) {
		return nil, nil
	}
	var entered []sharing.Mode
	var failed []error
	for _, s := range w.m.switchers {
		in, err := s.Entered(ctx, *d)
		if err != nil {
			failed = append(failed, fmt.Errorf("see whether it is in mode %s: %w", s.Mode(), err))
		}
		if in {
			entered = append(entered, s.Mode())
		}
	}
	return entered, errors.Join(failed...)
}

// notePassing reports, and notes, an error after which the same is tried soon and nothing
// is told.
func (w *worker) notePassing(err error) bool {
	w.unsure = isDriverBusy(err)
	return w.unsure
}

// isDriverBusy reports errors that say nothing about a device: the driver was just
// being opened or closed. One that goes away for longer breaks its devices, and those
// are not changed.
func isDriverBusy(err error) bool {
	return errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrNoDriver)
}

// runSteps takes the steps. Nothing is recorded on the device meanwhile: its state says
// that it is changing.
func (w *worker) runSteps(ctx context.Context, d *sharing.Device, steps []node.Step) {
	began := time.Now()
	for i := range steps {
		if err := w.runAction(ctx, d, steps[i].Action); err != nil {
			if ctx.Err() == nil && !w.notePassing(err) {
				w.reportFailure(d, err)
			}
			return
		}
		klog.InfoS("device changed", "device", d.ID, "step", steps[i].Action.String(), "took", time.Since(began))
	}
	w.rescanDevices(ctx)
	w.sendUnderLock(node.ModeEntered{Device: d.ID, Mode: d.Mode})
}

// rescanDevices has the device read again, so that the state is not ready under facts from
// before the change. A driver that hangs is not waited for.
func (w *worker) rescanDevices(ctx context.Context) {
	if w.m.cfg.Monitor == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	w.m.cfg.Monitor.rescanDevices(ctx)
}

func (w *worker) runAction(ctx context.Context, d *sharing.Device, a node.Action) error {
	s := w.m.switcherOf(a.Mode)
	do := s.Enter
	if a.Leave {
		do = s.Leave
	}
	if err := do(ctx, *d); err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	return nil
}

func (w *worker) reportFailure(d *sharing.Device, err error) {
	event := node.ChangeFailed{Device: d.ID, Mode: d.Mode, Why: err.Error()}
	var manual *modes.Manual
	if errors.As(err, &manual) {
		event.Manual, event.Why = true, manual.Why+": "+manual.Do
	}
	klog.ErrorS(err, "device cannot be brought into its mode", "device", d.ID, "mode", d.Mode)
	w.failed = time.Now()
	w.m.cfg.Failed(d.Mode, event.Manual)
	w.sendUnderLock(event)
}

func (w *worker) sendUnderLock(e node.Event) {
	unlock := w.m.cfg.Devices.lockKeys(string(w.id))
	defer unlock()
	w.m.cfg.Agent.Send(e)
}
