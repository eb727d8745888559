// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
)

// watches are the open watches of a driver. A device in an event set counts as in use, so that its
// MIG mode cannot be switched: while a mode is switched there is no event set.
type watches struct {
	mu     sync.Mutex
	open   []*nvmlWatch
	paused int // switches under way
}

// nvmlWatch is an NVML event set. known maps handles to UUIDs because a lost
// device no longer answers for its own.
type nvmlWatch struct {
	driver  *NVML
	devices []*nvmlDevice

	mu     sync.Mutex // held while waiting for an event
	set    nvml.EventSet
	known  map[nvml.Device]sharing.DeviceID
	paused bool    // there is no set
	missed bool    // there was none for a while, and nobody knows yet
	failed error   // why there is none again
	kept   []Event // taken from a set before it was closed
}

// Watch implements Driver. Devices that cannot report errors are left out: the
// periodic probe is all there is for them.
func (r *NVML) Watch(devices []Device) (Watch, error) {
	if err := r.requireOpen(); err != nil {
		return nil, err
	}
	w := &nvmlWatch{driver: r}
	for _, device := range devices {
		if d, ok := device.(*nvmlDevice); ok && d.broken == nil {
			w.devices = append(w.devices, d)
		}
	}
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	if w.paused = r.watches.paused > 0; !w.paused {
		if err := w.openEventSet(); err != nil {
			return nil, err
		}
	}
	r.watches.open = append(r.watches.open, w)
	return w, nil
}

// pauseWatches closes the event sets until resume is called.
func (r *NVML) pauseWatches() (resume func()) {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	r.watches.paused++
	if r.watches.paused == 1 {
		for _, w := range r.watches.open {
			w.closeEventSet()
		}
	}
	return r.resumeWatches
}

func (r *NVML) resumeWatches() {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	r.watches.paused--
	if r.watches.paused == 0 {
		for _, w := range r.watches.open {
			w.reopenEventSet()
		}
	}
}

func (w *nvmlWatch) openEventSet() error {
	set, ret := w.driver.Library().EventSetCreate()
	if err := nvmlFailure("nvmlEventSetCreate", ret); err != nil {
		return err
	}
	known := map[nvml.Device]sharing.DeviceID{}
	var failed []error
	for _, d := range w.devices {
		uuid, err := addToEventSet(d, set)
		switch {
		case errors.Is(err, ErrUnsupported):
		case err != nil:
			failed = append(failed, fmt.Errorf("watch device %d: %w", d.index, err))
		default:
			known[d.handle] = uuid
		}
	}
	if len(failed) > 0 {
		_ = set.Free()
		return errors.Join(failed...)
	}
	w.set, w.known = set, known
	return nil
}

func addToEventSet(d *nvmlDevice, set nvml.EventSet) (sharing.DeviceID, error) {
	supported, ret := d.handle.GetSupportedEventTypes()
	if err := nvmlFailure("nvmlDeviceGetSupportedEventTypes", ret); err != nil {
		return "", err
	}
	wanted := supported & nvml.EventTypeXidCriticalError
	if wanted == 0 {
		return "", ErrUnsupported
	}
	uuid, ret := d.handle.GetUUID()
	if err := nvmlFailure("nvmlDeviceGetUUID", ret); err != nil {
		return "", err
	}
	return sharing.DeviceID(uuid), nvmlFailure("nvmlDeviceRegisterEvents", d.handle.RegisterEvents(wanted, set))
}

// closeEventSet closes the event set, when who waits for an event has returned. What has happened
// until then is kept.
func (w *nvmlWatch) closeEventSet() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.failed == nil {
		e, err := w.nextEvent(0)
		if err != nil {
			break
		}
		w.kept = append(w.kept, e)
	}
	if w.failed == nil {
		_ = w.set.Free()
	}
	w.paused = true
}

func (w *nvmlWatch) reopenEventSet() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused, w.missed, w.failed = false, true, nil
	if err := w.openEventSet(); err != nil {
		w.failed = fmt.Errorf("watch the devices again after the mode of one was switched: %w", err)
	}
}

// pausedPoll is how long a wait without an event set takes, so that its end is noticed soon.
const pausedPoll = 50 * time.Millisecond

func (w *nvmlWatch) Wait(atMost time.Duration) (Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.kept) > 0:
		e := w.kept[0]
		w.kept = w.kept[1:]
		return e, nil
	case w.paused:
		w.mu.Unlock()
		time.Sleep(min(atMost, pausedPoll))
		w.mu.Lock()
		return Event{}, ErrQuiet
	case w.failed != nil:
		return Event{}, w.failed
	case w.missed:
		w.missed = false
		return Event{}, ErrMissed
	}
	return w.nextEvent(atMost)
}

func (w *nvmlWatch) nextEvent(atMost time.Duration) (Event, error) {
	data, ret := w.set.Wait(uint32(max(atMost.Milliseconds(), 1)))
	if err := nvmlFailure("nvmlEventSetWait", ret); err != nil {
		return Event{}, err
	}
	if data.EventType != nvml.EventTypeXidCriticalError {
		return Event{}, ErrQuiet
	}
	e := Event{XID: data.EventData, Device: w.known[data.Device]}
	if e.Device == "" {
		if uuid, ret := data.Device.GetUUID(); ret == nvml.SUCCESS {
			e.Device = sharing.DeviceID(uuid)
		}
	}
	return e, nil
}

func (w *nvmlWatch) Close() error {
	w.driver.watches.mu.Lock()
	defer w.driver.watches.mu.Unlock()
	w.driver.watches.open = slices.DeleteFunc(w.driver.watches.open, func(x *nvmlWatch) bool { return x == w })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused || w.failed != nil {
		return nil
	}
	return nvmlFailure("nvmlEventSetFree", w.set.Free())
}
