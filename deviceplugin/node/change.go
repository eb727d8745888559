// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing"
)

// modeChange is how far a device is on its way into the mode the administrator wants.
type modeChange struct {
	// verdict is what followed from the last look or step.
	verdict verdict
	// entered are the modes the device was in, or had anything left of, at the last
	// look.
	entered []sharing.Mode
	// settled is the mode this process brought the device into, if it did.
	settled sharing.Mode
	failure failure
	// arrived is the mode the device was ready in last, or was found in.
	arrived arrival
	// waitsFor is the mode the device waits for its holders to leave for, if any.
	waitsFor sharing.Mode
}

// verdict is a condition of the device that holds for one wanted mode only: when
// the administrator edits the mode, somebody must look again.
type verdict struct {
	wanted    sharing.Mode
	condition Condition
	actions   []Action
	holders   []Holder
}

// failure is the last attempt to bring a device into a mode, if it failed.
type failure struct {
	attempts int // in a row; 0 is none
	wanted   sharing.Mode
	entered  []sharing.Mode
	kind     Kind // Failing or NeedsAdministrator
	why      string
}

// arrival is where a device was last; known is false before the first look that
// found nobody in the way.
type arrival struct {
	known bool
	mode  sharing.Mode
}

// Action is one change of a device.
type Action struct {
	Mode  sharing.Mode
	Leave bool // else it is entered
}

// String says what is done, for the log.
func (a Action) String() string {
	if a.Leave {
		return "leave " + string(a.Mode)
	}
	return "enter " + string(a.Mode)
}

// situation is what a look finds out about one device.
type situation struct {
	wanted   sharing.Mode   // the mode the administrator gave it
	switched []sharing.Mode // see Powers.Switched
	entered  []sharing.Mode // those of them the device is in
	// settled says that this process has brought the device into the wanted mode.
	// Without it a mode that looks entered is entered again: a process before this
	// one may have died half way.
	settled bool
	holders []Holder
}

// decision is what to do with a device: wait, with the reason, or take actions.
// Without either the device is ready for pods in the wanted mode.
type decision struct {
	wait    bool
	why     string
	actions []Action
}

func (d decision) isReady() bool { return !d.wait && len(d.actions) == 0 }

// decideModeChange says how the device gets into the wanted mode.
//
// Somebody who holds a share in the wanted mode was given it when the device was
// in that mode, and it has not been touched since: then the device is ready. Its
// preparer brings back what a reboot took away. A holder of unknown mode was given
// nothing by us and stands in the way of every mode that needs something of the
// device or of the device plugin that keeps it: only a device in none of the
// switched modes goes on as hami-core beside it.
func decideModeChange(s situation) decision {
	if len(s.holders) > 0 {
		why, wait := inTheWay(s)
		return decision{wait: wait, why: why}
	}
	var d decision
	for _, m := range s.switched {
		if m != s.wanted && slices.Contains(s.entered, m) {
			d.actions = append(d.actions, Action{Mode: m, Leave: true})
		}
	}
	if slices.Contains(s.switched, s.wanted) && !(s.settled && slices.Contains(s.entered, s.wanted)) {
		d.actions = append(d.actions, Action{Mode: s.wanted})
	}
	return d
}

// inTheWay says who keeps the device in another mode, if anybody does. It names a
// few, so that the text stays the same while most of the others go: it is published.
func inTheWay(s situation) (why string, is bool) {
	const named = 3
	var pods, modes []string
	plain := s.wanted == sharing.HAMiCore && len(s.entered) == 0
	for _, h := range s.holders {
		if h.Mode == s.wanted || h.Mode == "" && plain {
			continue
		}
		if !slices.Contains(pods, h.Pod) {
			pods = append(pods, h.Pod)
		}
		mode := "mode " + string(h.Mode)
		if h.Mode == "" {
			mode = "a mode that is not recorded"
		}
		if !slices.Contains(modes, mode) {
			modes = append(modes, mode)
		}
	}
	if len(pods) == 0 {
		return "", false
	}
	slices.Sort(pods)
	slices.Sort(modes)
	list := strings.Join(pods[:min(len(pods), named)], ", ")
	if len(pods) > named {
		list += " and others"
	}
	return fmt.Sprintf("its mode becomes %s when the pods that hold it in %s are gone: %s", s.wanted, strings.Join(modes, " and "), list), true
}

func (c modeChange) afterLook(s situation) modeChange {
	d := decideModeChange(s)
	c.entered = s.entered
	c.verdict = verdict{wanted: s.wanted, holders: s.holders}
	switch {
	case d.wait:
		c.verdict.condition = Condition{Waiting, d.why}
		c.failure, c.settled, c.waitsFor = failure{}, "", s.wanted
		return c
	case d.isReady():
		c.failure, c.waitsFor, c.arrived = failure{}, "", arrival{true, s.wanted}
		return c
	}
	// Until all actions are taken nobody knows how far the device is.
	c.waitsFor, c.settled = "", ""
	c.verdict.actions = d.actions
	c.verdict.condition = Condition{Changing, fmt.Sprintf("it is being brought into mode %s", s.wanted)}
	if c.failure.wanted == s.wanted {
		// What is shown stays the same while the same is tried again and again.
		c.verdict.condition = Condition{c.failure.kind, c.failure.why}
	}
	if !c.arrived.known {
		c.arrived.known = true
		if slices.Equal(s.entered, []sharing.Mode{s.wanted}) {
			// A process that starts anew enters the mode again and changes nothing.
			c.arrived.mode = s.wanted
		}
	}
	return c
}

func (c modeChange) afterFailure(wanted sharing.Mode, entered []sharing.Mode, kind Kind, why string) modeChange {
	next := failure{attempts: 1, wanted: wanted, entered: entered, kind: kind, why: why}
	if c.failure.wanted == wanted {
		next.attempts += c.failure.attempts
	}
	c.failure = next
	c.verdict = verdict{wanted: wanted, condition: Condition{kind, why}}
	return c
}

func (c modeChange) afterEntering(mode sharing.Mode) modeChange {
	c.failure, c.settled, c.arrived = failure{}, mode, arrival{true, mode}
	c.verdict = verdict{wanted: mode}
	return c
}

// whileUntouchable is the change of a device that must not be changed now. What it
// comes back as is not known: a reset may have taken its mode.
func (c modeChange) whileUntouchable() modeChange {
	c.failure, c.settled, c.verdict.actions = failure{}, "", nil
	return c
}
