// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"deviceshare/sharing"
)

// StepKind is what kind of thing is to be done.
type StepKind uint8

// The kinds of steps.
const (
	// Look: find out, with the device's lock held, in which modes the device is and
	// who holds it, and send Looked or LookFailed.
	Look StepKind = iota
	// Act: take Action with the device. After all actions for a device send
	// ModeEntered; after one that fails ChangeFailed.
	Act
	// TakeBack: remove everything of Owner, and send Released or ReleaseFailed.
	TakeBack
)

// Step is one thing to do. Steps for different devices and owners are independent;
// those for one device are taken in order.
type Step struct {
	Kind   StepKind
	Device sharing.DeviceID
	Action Action
	// Wanted is the mode that the actions for the device lead to.
	Wanted sharing.Mode
	Owner  sharing.Owner
	// Attempts is how often the same has failed in a row: the more often, the longer
	// one waits before the next attempt.
	Attempts int
	// ByHand: the last attempt found that only an administrator can do it.
	ByHand bool
}

// Plan returns what is to be done, in the order of devices and then of owners. A
// device that has to be looked at is looked at before anything is done with it.
func Plan(s State) []Step {
	var steps []Step
	for i := range s.devices {
		d := &s.devices[i]
		c := s.conditionOf(d)
		if !c.Kind.May().Change || !s.cfg.Powers.Switches {
			continue
		}
		f, v := d.change.failure, d.change.verdict
		current := v.wanted == s.offerOf(d).Mode
		if !current || len(v.actions) == 0 && c.Kind != Ready {
			// One that waits, or whose last attempt failed, is looked at again.
			steps = append(steps, Step{Kind: Look, Device: d.facts.UUID, Attempts: f.attempts, ByHand: f.kind == NeedsAdministrator})
			continue
		}
		again := f.attempts
		if f.wanted != v.wanted || !slices.Equal(f.entered, d.change.entered) {
			again = 0 // something else is tried than what failed
		}
		for _, a := range v.actions {
			steps = append(steps, Step{
				Kind: Act, Device: d.facts.UUID, Action: a, Wanted: v.wanted,
				Attempts: again, ByHand: again > 0 && f.kind == NeedsAdministrator,
			})
		}
	}
	for _, r := range s.releases {
		steps = append(steps, Step{Kind: TakeBack, Owner: r.Owner, Attempts: r.Attempts})
	}
	return steps
}
