// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// MoverConfig is what a Mover works with. All fields but Monitor are needed.
type MoverConfig struct {
	Agent *Agent
	// Preparers are those of the node; a mode that is a state of the device is a modes.Switcher.
	Preparers []modes.Preparer
	// Holders tells who holds a device. It is asked with the device's lock held.
	Holders interface {
		Holders(id sharing.DeviceID) []node.Holder
	}
	// Devices has one lock per device, by its id. Whoever records a share of a device
	// holds it from the look at the state to the record.
	Devices *KeyedLock
	// Monitor, if there is one, reads a device again after it was changed and before it is
	// ready.
	Monitor *Monitor
	// Failed counts every attempt that failed.
	Failed func(mode sharing.Mode, manual bool)
}

// Mover brings idle devices into their modes. One goroutine works for each
// device, so that one that is slow or stuck holds up no other.
type Mover struct {
	cfg       MoverConfig
	switchers []modes.Switcher
	released  chan struct{}
	looked    chan struct{}

	// first and most bound the wait after a failure, which doubles.
	first, most time.Duration
	// again is how often every device is looked at without a cause, and how often a change is tried
	// that only an administrator can make.
	again time.Duration
}

// NewMover returns a mover that has not started.
func NewMover(cfg MoverConfig) *Mover {
	m := &Mover{
		cfg: cfg, released: make(chan struct{}, 1), looked: make(chan struct{}),
		first: time.Second, most: 2 * time.Minute, again: 30 * time.Second,
	}
	for _, p := range cfg.Preparers {
		if s, is := p.(modes.Switcher); is {
			m.switchers = append(m.switchers, s)
		}
	}
	return m
}

// Released makes the mover look again, since somebody may have given back a
// device. It does not block.
func (m *Mover) Released() { trySignal(m.released) }

// AwaitLook returns when every device that was there at the start has been looked at once and those
// that needed little have been changed: what is published before would show devices as unready that
// are not. It returns after a while too: a device that takes long must not keep the others from
// being published.
func (m *Mover) AwaitLook(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-m.looked:
	case <-time.After(10 * time.Second):
		klog.InfoS("some devices are still on the way into their modes; the others are published")
	}
}

func trySignal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and returns when no change is under way any more.
func (m *Mover) Run(ctx context.Context) error {
	changes, stop := m.cfg.Agent.Changes()
	defer stop()
	var working sync.WaitGroup
	defer working.Wait()
	workers := map[sharing.DeviceID]*worker{}
	again := time.NewTicker(m.again)
	defer again.Stop()
	for first := true; ; first = false {
		var looks sync.WaitGroup
		state := m.cfg.Agent.State()
		for _, d := range state.Changeable() {
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
			trySignal(w.look)
		}
		if first {
			go func() { looks.Wait(); close(m.looked) }()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-m.released:
		case <-again.C:
		}
	}
}

// retryDelay is how long to wait before a step is tried that has failed before.
func (m *Mover) retryDelay(s *node.Step) time.Duration {
	if s.ByHand {
		return m.again
	}
	return backoffDelay(s.Attempts, m.first, m.most)
}

func (m *Mover) switcherOf(mode sharing.Mode) modes.Switcher {
	for _, s := range m.switchers {
		if s.Mode() == mode {
			return s
		}
	}
	return nil
}
