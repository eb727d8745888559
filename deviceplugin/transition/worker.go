// SPDX-License-Identifier: Apache-2.0

package transition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
)

// worker changes one device. Its fields belong to its goroutine but for look.
type worker struct {
	m    *Mover
	id   sharing.DeviceID
	look chan struct{}
	done func() // told once, after the first look

	settled sharing.Mode // the mode this process brought the device into
	stood   sharing.Mode // the mode it was ready in last, "" before the first look
	waiting sharing.Mode // the mode that Waiting was told last
	failed  attempt      // the last attempt, if it failed
	unsure  bool         // the last look or change met an error that passes
}

// attempt is a change that failed.
type attempt struct {
	wanted  sharing.Mode
	entered []sharing.Mode
	text    string
	next    time.Time
	wait    time.Duration
}

func newWorker(m *Mover, id sharing.DeviceID) *worker {
	return &worker{m: m, id: id, look: make(chan struct{}, 1), done: func() {}}
}

// run works until ctx ends.
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
		w.once(ctx)
		w.done()
		w.done = func() {}
		switch {
		case w.unsure:
			retry.Reset(w.m.cfg.First)
		case w.failed.text != "":
			retry.Reset(time.Until(w.failed.next))
		}
	}
}

// once looks at the device and does what must be done.
func (w *worker) once(ctx context.Context) {
	w.unsure = false
	d, ok := w.m.device(w.id)
	if !ok {
		// What it comes back as is not known: a reset may have taken its mode.
		w.failed, w.settled = attempt{}, ""
		return
	}
	decision, f, err := w.decide(ctx, &d)
	entered := f.Entered
	switch {
	case w.passes(err):
	case err != nil:
		w.fail(&d, entered, err)
	case decision.Why != "":
		w.failed, w.settled = attempt{}, ""
		if w.waiting != d.Mode {
			w.m.cfg.Observe.Waiting(d, decision.Why, f.Holders)
		}
		w.waiting = d.Mode
	case len(decision.Steps) == 0:
		w.failed, w.waiting = attempt{}, ""
		w.arrive(&d, w.stood == "", 0)
	case w.tooSoon(&d, entered):
	default:
		w.waiting = ""
		w.change(ctx, &d, entered, decision.Steps)
	}
}

// decide looks and shows what it found under the lock of the device: what is
// recorded there before is seen here, and what comes after sees what is shown.
func (w *worker) decide(ctx context.Context, d *sharing.Device) (Decision, Facts, error) {
	unlock := w.m.cfg.Locks.Lock(string(d.ID))
	defer unlock()
	f := Facts{Wanted: d.Mode, Settled: w.settled == d.Mode, Holders: w.m.cfg.Holders(d.ID)}
	var failed []error
	for _, s := range w.m.cfg.Switchers {
		f.Switched = append(f.Switched, s.Mode())
		if len(f.Holders) > 0 && !slices.ContainsFunc(f.Holders, func(h Holder) bool { return h.Mode == "" }) {
			continue // it is left alone whatever the answer
		}
		in, err := s.Entered(ctx, *d)
		if err != nil {
			failed = append(failed, fmt.Errorf("see whether it is in mode %s: %w", s.Mode(), err))
		}
		if in {
			f.Entered = append(f.Entered, s.Mode())
		}
	}
	if err := errors.Join(failed...); err != nil {
		if w.m.cfg.Passing(err) {
			return Decision{}, f, err // it is as it was shown last
		}
		w.show(d, Standing{Why: w.reason(d, err.Error())})
		return Decision{}, f, err
	}
	decision := Decide(f)
	switch {
	case decision.Ready():
		w.show(d, Standing{Mode: d.Mode})
	case decision.Why != "":
		w.show(d, Standing{Why: decision.Why})
	default:
		w.show(d, Standing{Why: w.reason(d, fmt.Sprintf("it is being brought into mode %s", d.Mode))})
	}
	return decision, f, nil
}

func (w *worker) show(d *sharing.Device, s Standing) { w.m.cfg.Show(d.ID, s) }

// reason is what failed last as long as the same is tried, so that a device that
// cannot be changed is not published anew at every attempt.
func (w *worker) reason(d *sharing.Device, otherwise string) string {
	if w.failed.text != "" && w.failed.wanted == d.Mode {
		return w.failed.text
	}
	return otherwise
}

// passes reports, and notes, an error after which the same is tried soon and nothing
// is told.
func (w *worker) passes(err error) bool {
	w.unsure = err != nil && w.m.cfg.Passing(err)
	return w.unsure
}

// tooSoon reports that the same change failed and its time has not come.
func (w *worker) tooSoon(d *sharing.Device, entered []sharing.Mode) bool {
	f := &w.failed
	return f.text != "" && f.wanted == d.Mode && slices.Equal(f.entered, entered) && time.Now().Before(f.next)
}

// change takes the steps. Nothing is recorded on the device meanwhile: it is shown
// as unready.
func (w *worker) change(ctx context.Context, d *sharing.Device, entered []sharing.Mode, steps []Step) {
	began := time.Now()
	w.settled = ""
	for _, step := range steps {
		if err := w.step(ctx, d, step); err != nil {
			if ctx.Err() == nil && !w.passes(err) {
				w.fail(d, entered, err)
			}
			return
		}
		klog.InfoS("device changed", "device", d.ID, "step", step.String(), "took", time.Since(began))
	}
	w.failed, w.settled = attempt{}, d.Mode
	w.m.cfg.Changed(ctx, d.ID)
	unlock := w.m.cfg.Locks.Lock(string(d.ID))
	w.show(d, Standing{Mode: d.Mode})
	unlock()
	// A process that starts again enters the mode again and has changed nothing.
	w.arrive(d, w.stood == "" && slices.Equal(entered, []sharing.Mode{d.Mode}), time.Since(began))
}

// arrive notes that the device is ready in its mode, and tells it unless it was so
// before.
func (w *worker) arrive(d *sharing.Device, before bool, took time.Duration) {
	if !before && w.stood != d.Mode {
		w.m.cfg.Observe.Moved(*d, took)
	}
	w.stood = d.Mode
}

func (w *worker) step(ctx context.Context, d *sharing.Device, step Step) error {
	s := w.m.switcher(step.Mode)
	do := s.Enter
	if step.Leave {
		do = s.Leave
	}
	if err := do(ctx, *d); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

// fail notes a failure, shows why, and sets the time of the next attempt.
func (w *worker) fail(d *sharing.Device, entered []sharing.Mode, err error) {
	last := w.failed
	next := attempt{wanted: d.Mode, entered: entered, text: err.Error(), wait: w.m.cfg.First}
	var manual *nodeapi.Manual
	switch {
	case errors.As(err, &manual):
		next.text, next.wait = manual.Why+": "+manual.Do, w.m.cfg.Again
	case last.text != "" && last.wanted == d.Mode:
		next.wait = min(2*last.wait, w.m.cfg.Most)
	}
	next.next = time.Now().Add(next.wait)
	w.failed = next
	unlock := w.m.cfg.Locks.Lock(string(d.ID))
	w.show(d, Standing{Why: next.text})
	unlock()
	w.m.cfg.Observe.Failed(*d, err, last.text != next.text || last.wanted != next.wanted)
}
