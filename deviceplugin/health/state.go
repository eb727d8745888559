// SPDX-License-Identifier: Apache-2.0

// Package health decides which devices are broken and keeps the board current.
//
// The rule: a device breaks at once when it reports a critical error (XID) that
// is not on the list of application errors, or when it does not answer a probe.
// It comes back, without a restart, at the first probe it answers; after a
// critical error only when no further one came for the quiet time. A device that
// needs a reset does not answer, so it stays broken until it was reset.
package health

import (
	"fmt"
	"maps"
	"time"

	"deviceshare/sharing"
)

// ApplicationXIDs are critical errors caused by the program that ran, not by the
// device: graphics engine exception, page fault, reset channel, stopped
// processing, video processor exception, context switch timeout. The list is the
// default of NVIDIA's own device plugin; the meanings are in NVIDIA's "XID
// Errors".
func ApplicationXIDs() []uint64 { return []uint64{13, 31, 43, 45, 68, 109} }

// State is what is known about one device's health. The zero value is healthy.
// Its methods return a new value and change nothing.
type State struct {
	lost  string    // why it does not answer; "" if it does
	fault string    // the last critical error; "" if none counts
	since time.Time // of the last critical error
}

// Why is why the device is broken, "" if it is healthy.
func (s State) Why() string {
	if s.lost != "" {
		return s.lost
	}
	return s.fault
}

// Faulted is the state after a critical error.
func (s State) Faulted(xid uint64, now time.Time) State {
	s.fault, s.since = fmt.Sprintf("critical error XID %d", xid), now
	return s
}

// Silent is the state after a probe that was not answered.
func (s State) Silent(err error) State {
	s.lost = err.Error()
	return s
}

// Answered is the state after a probe that was answered.
func (s State) Answered(now time.Time, quiet time.Duration) State {
	s.lost = ""
	if s.fault != "" && now.Sub(s.since) >= quiet {
		s.fault = ""
	}
	return s
}

// ledger is the states of all devices. It is used by one goroutine.
type ledger struct {
	states  map[sharing.DeviceID]State
	ignored map[uint64]bool
	all     bool // every error is ignored
	quiet   time.Duration
}

func newLedger(c Config) *ledger {
	l := &ledger{states: map[sharing.DeviceID]State{}, ignored: map[uint64]bool{}, all: c.IgnoreAll, quiet: c.Quiet}
	for _, xid := range c.Ignored {
		l.ignored[xid] = true
	}
	return l
}

// fault takes in an error of a device; of all devices when it is "", because the
// driver could not say which. It reports whether the error counts.
func (l *ledger) fault(id sharing.DeviceID, xid uint64, now time.Time) bool {
	if l.all || l.ignored[xid] {
		return false
	}
	if id != "" {
		l.states[id] = l.states[id].Faulted(xid, now)
		return true
	}
	for each := range maps.Keys(l.states) {
		l.states[each] = l.states[each].Faulted(xid, now)
	}
	return true
}

// probed takes in the answer to a probe.
func (l *ledger) probed(id sharing.DeviceID, err error, now time.Time) {
	if err != nil {
		l.states[id] = l.states[id].Silent(err)
		return
	}
	l.states[id] = l.states[id].Answered(now, l.quiet)
}

// sick is why each broken device is broken.
func (l *ledger) sick() map[sharing.DeviceID]string {
	sick := map[sharing.DeviceID]string{}
	for id, s := range l.states {
		if why := s.Why(); why != "" {
			sick[id] = why
		}
	}
	return sick
}
