// SPDX-License-Identifier: Apache-2.0

package transition

import (
	"context"
	"sync"
	"time"

	"deviceshare/deviceplugin/lock"
	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
)

// Standing is how far a device is on its way: the mode it is ready for pods in,
// or "" and why it is in none.
type Standing struct {
	Mode sharing.Mode
	Why  string
}

// Config is what a Mover works with. All fields but the durations and Observe are
// needed.
type Config struct {
	Switchers []nodeapi.Switcher
	// Devices are the devices that work, with the modes the administrator gave
	// them.
	Devices func() []sharing.Device
	// Holders are the live shares on a device.
	Holders func(sharing.DeviceID) []Holder
	// Locks has one lock per device, by its id. Whoever records a share of a
	// device holds it from the look at the device's standing to the record.
	Locks *lock.Keyed
	// Show is told the standing of a device, with its lock held.
	Show func(sharing.DeviceID, Standing)
	// Changed is told that a device was changed, before it is shown as ready, so
	// that what the driver says of it can be read again. It may be nil.
	Changed func(context.Context, sharing.DeviceID)
	// Changes holds a token when Devices may answer differently.
	Changes <-chan struct{}
	// Passing reports errors that say nothing about a device, because the driver was
	// just being opened or closed: they are not shown, and it is asked again. Nil is
	// none.
	Passing func(error) bool
	Observe Observer
	// First and Most bound the wait after a failure, which doubles; 1 s and 2 min.
	First, Most time.Duration
	// Again is how often every device is looked at without a cause, and how often a
	// change is tried that only an administrator can make; 30 s.
	Again time.Duration
}

// Observer is told what happens, each thing once. Nil functions are left out.
type Observer struct {
	// Moved is told about a device that was brought into a mode.
	Moved func(d sharing.Device, took time.Duration)
	// Waiting is told, once per mode that is wanted, that a device stays as it is
	// because of its holders, those in other modes among them.
	Waiting func(d sharing.Device, why string, holders []Holder)
	// Failed is told about every attempt that failed. fresh is false if the one
	// before failed alike.
	Failed func(d sharing.Device, err error, fresh bool)
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&c.First, time.Second)
	set(&c.Most, 2*time.Minute)
	set(&c.Again, 30*time.Second)
	if c.Passing == nil {
		c.Passing = func(error) bool { return false }
	}
	if c.Changed == nil {
		c.Changed = func(context.Context, sharing.DeviceID) {}
	}
	if c.Observe.Moved == nil {
		c.Observe.Moved = func(sharing.Device, time.Duration) {}
	}
	if c.Observe.Waiting == nil {
		c.Observe.Waiting = func(sharing.Device, string, []Holder) {}
	}
	if c.Observe.Failed == nil {
		c.Observe.Failed = func(sharing.Device, error, bool) {}
	}
	return c
}

// Mover brings idle devices into their modes. One goroutine works for each
// device, so that one that is slow or stuck holds up no other.
type Mover struct {
	cfg      Config
	released chan struct{}
	looked   chan struct{}
}

// New returns a mover that has not started.
func New(cfg Config) *Mover {
	return &Mover{cfg: cfg.withDefaults(), released: make(chan struct{}, 1), looked: make(chan struct{})}
}

// Released makes the mover look again, since somebody may have given back a
// device. It does not block.
func (m *Mover) Released() { poke(m.released) }

// Looked is closed when every device that was there at the start has been looked
// at once and those that needed little have been changed: what is published before
// would show devices as unready that are not.
func (m *Mover) Looked() <-chan struct{} { return m.looked }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and returns when no change is under way any more.
func (m *Mover) Run(ctx context.Context) error {
	var working sync.WaitGroup
	defer working.Wait()
	workers := map[sharing.DeviceID]*worker{}
	again := time.NewTicker(m.cfg.Again)
	defer again.Stop()
	for first := true; ; first = false {
		var looks sync.WaitGroup
		for _, d := range m.cfg.Devices() {
			w, ok := workers[d.ID]
			if !ok {
				w = newWorker(m, d.ID)
				workers[d.ID] = w
				if first {
					looks.Add(1)
					w.done = looks.Done
				}
				working.Go(func() { w.run(ctx) })
			}
			poke(w.look)
		}
		if first {
			go func() { looks.Wait(); close(m.looked) }()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.cfg.Changes:
		case <-m.released:
		case <-again.C:
		}
	}
}

// device is one device as the administrator wants it; false while it does not
// work or is not offered.
func (m *Mover) device(id sharing.DeviceID) (sharing.Device, bool) {
	for _, d := range m.cfg.Devices() {
		if d.ID == id {
			return d, true
		}
	}
	return sharing.Device{}, false
}

func (m *Mover) switcher(mode sharing.Mode) nodeapi.Switcher {
	for _, s := range m.cfg.Switchers {
		if s.Mode() == mode {
			return s
		}
	}
	return nil
}
