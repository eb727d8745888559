// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"deviceshare/sharing"
)

// Event is something that happened. The events are the types of this file.
type Event interface {
	applyTo(s *State)
}

// Reduce returns the state after an event. It changes neither of its arguments.
func Reduce(s State, e Event) State {
	s.devices = slices.Clone(s.devices)
	e.applyTo(&s)
	switch e.(type) {
	case Scanned, Configured, ConfigLost, Holdings:
		s.offered = s.countOffered()
	}
	switch e.(type) {
	case Scanned, OfferedByOthers:
		s.findContests()
	}
	for i := range s.devices {
		if d := &s.devices[i]; !s.conditionOf(d).Kind.May().Change {
			d.change = d.change.whileUntouchable()
		}
	}
	return s
}

// Scanned: the driver listed its devices and these answered. What earlier scans
// found and this one did not is kept, because pods hold shares of it.
type Scanned struct {
	Devices []Facts
	// Unread is how many devices are listed and did not answer.
	Unread int
}

func (e Scanned) applyTo(s *State) {
	s.scanned, s.unread = true, e.Unread
	s.troubles = withoutTrouble(s.troubles, PartDriver)
	merged := make([]device, 0, len(e.Devices))
	for _, f := range e.Devices {
		next := device{facts: f}
		if old := s.findDevice(f.UUID); old != nil {
			next.health, next.change = old.health, old.change
			if f.Virtual {
				next.licence = old.licence
			}
		}
		merged = append(merged, next)
	}
	for _, old := range s.devices {
		if slices.ContainsFunc(e.Devices, func(f Facts) bool { return f.UUID == old.facts.UUID }) {
			continue
		}
		if old.presence == present {
			old.presence = missing
		}
		if slices.ContainsFunc(e.Devices, func(f Facts) bool { return f.PCI == old.facts.PCI }) {
			old.presence = replaced
		}
		old.health = old.health.afterSilence("the driver no longer lists it")
		merged = append(merged, old)
	}
	s.devices = merged
}

// DriverFailed: the driver cannot be used. Nothing is known about any device then:
// a driver that stopped working says no more that its devices work.
type DriverFailed struct{ Why string }

func (e DriverFailed) applyTo(s *State) {
	s.troubles = withTrouble(s.troubles, PartDriver, e.Why)
	for i := range s.devices {
		s.devices[i].health = s.devices[i].health.afterSilence(e.Why)
	}
}

// Answered: a device answered a probe. One that the driver does not list any more
// stays absent, whatever its handle answers.
type Answered struct {
	Device sharing.DeviceID
	At     Moment
}

func (e Answered) applyTo(s *State) {
	if d := s.findDevice(e.Device); d != nil && d.presence == present {
		d.health = d.health.afterAnswer(e.At, s.cfg.Health.Quiet)
	}
}

// Silent: a device did not answer a probe.
type Silent struct {
	Device sharing.DeviceID
	Why    string
}

func (e Silent) applyTo(s *State) {
	if d := s.findDevice(e.Device); d != nil {
		d.health = d.health.afterSilence(e.Why)
	}
}

// Faulted: a device reported a critical error; without a Device the driver could
// not say which, and all of them count as broken.
type Faulted struct {
	Device sharing.DeviceID
	XID    uint64
	At     Moment
}

func (e Faulted) applyTo(s *State) {
	if !s.cfg.Health.Counts(e.XID) {
		return
	}
	for i := range s.devices {
		if d := &s.devices[i]; e.Device == "" || d.facts.UUID == e.Device {
			d.health = d.health.afterFault(e.XID, e.At)
		}
	}
}

// Configured: the administrator's settings are known.
type Configured struct{ Settings Settings }

func (e Configured) applyTo(s *State) { s.settings, s.unknown = e.Settings, unknownConfig{} }

// ConfigLost: it is not known what the administrator wants. The settings are what
// is in force meanwhile, such as the defaults; nothing is concluded from them
// about modes.
type ConfigLost struct {
	Settings Settings
	Why      string
}

func (e ConfigLost) applyTo(s *State) { s.settings, s.unknown = e.Settings, unknownConfig{true, e.Why} }

// Looked: somebody looked at a device with its lock held.
type Looked struct {
	Device  sharing.DeviceID
	Entered []sharing.Mode // the switched modes it is in, or has anything left of
	Holders []Holder
}

func (e Looked) applyTo(s *State) {
	d := s.findDevice(e.Device)
	if d == nil || !s.conditionOf(d).Kind.May().Change {
		return
	}
	wanted := s.offerOf(d).Mode
	d.change = d.change.afterLook(situation{
		wanted: wanted, switched: s.cfg.Powers.Switched, entered: e.Entered,
		settled: d.change.settled == wanted, holders: e.Holders,
	})
}

// LookFailed: the modes of a device cannot be found out.
type LookFailed struct {
	Device sharing.DeviceID
	Why    string
}

func (e LookFailed) applyTo(s *State) {
	if d := s.findDevice(e.Device); d != nil && s.conditionOf(d).Kind.May().Change {
		d.change = d.change.afterFailure(s.offerOf(d).Mode, nil, Failing, e.Why)
	}
}

// ModeEntered: all actions of the plan for a device have been taken.
type ModeEntered struct {
	Device sharing.DeviceID
	Mode   sharing.Mode
}

func (e ModeEntered) applyTo(s *State) {
	if d := s.findDevice(e.Device); d != nil {
		d.change = d.change.afterEntering(e.Mode)
	}
}

// ChangeFailed: an action of the plan for a device failed, on the way into a mode.
type ChangeFailed struct {
	Device sharing.DeviceID
	Mode   sharing.Mode
	Why    string
	// Manual: only an administrator can do it.
	Manual bool
}

func (e ChangeFailed) applyTo(s *State) {
	d := s.findDevice(e.Device)
	if d == nil {
		return
	}
	kind := Failing
	if e.Manual {
		kind = NeedsAdministrator
	}
	d.change = d.change.afterFailure(e.Mode, d.change.entered, kind, e.Why)
}
