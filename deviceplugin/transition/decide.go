// SPDX-License-Identifier: Apache-2.0

// Package transition brings devices into the mode the administrator gave them,
// without restarting anything and without touching a pod that runs.
//
// A device is changed when nothing holds a share of it: every other mode it is in
// is left, then the wanted one is entered. Until that has succeeded the device is
// published in the wanted mode as not healthy, with the reason, so that nothing
// is placed on it in either mode. A device with holders is left alone and looked
// at again when one of them goes.
//
// Decide says what is to be done and is pure; Mover does it.
package transition

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing"
)

// Holder is somebody who holds a share of a device on this node.
type Holder struct {
	Owner sharing.Owner
	Pod   string // namespace/name, for people
	// Mode is the mode the share is held in; "" when nobody wrote it down, as for
	// pods that another device plugin started.
	Mode sharing.Mode
}

// Facts is what is known of one device.
type Facts struct {
	// Wanted is the mode the administrator gave it.
	Wanted sharing.Mode
	// Switched are the modes that are states of the device, in the order in which
	// they are left.
	Switched []sharing.Mode
	// Entered are those of them the device is in, or has anything left of.
	Entered []sharing.Mode
	// Settled says that this process has brought the device into the wanted mode.
	// Without it a mode that looks entered is entered again: a process before this
	// one may have died half way.
	Settled bool
	// Holders are the live shares on the device.
	Holders []Holder
}

// Step is one change of the device.
type Step struct {
	Mode  sharing.Mode
	Leave bool // else it is entered
}

// String says what is done, for the log.
func (s Step) String() string {
	if s.Leave {
		return "leave " + string(s.Mode)
	}
	return "enter " + string(s.Mode)
}

// Decision is what to do with the device. Without Why and Steps it is ready for
// pods in the wanted mode.
type Decision struct {
	// Why is why the device must be left alone for now.
	Why string
	// Steps bring an idle device into the wanted mode, in this order.
	Steps []Step
}

// Ready reports that nothing is to be done and nothing is in the way.
func (d Decision) Ready() bool { return d.Why == "" && len(d.Steps) == 0 }

// Decide says how the device gets into the wanted mode. It changes none of its
// arguments.
//
// Somebody who holds a share in the wanted mode was given it when the device was
// in that mode, and it has not been touched since: then the device is ready. Its
// preparer brings back what a reboot took away. A holder of unknown mode was given
// nothing by us and stands in the way of every mode that needs something of the
// device or of the device plugin that keeps it: only a device in none of the
// switched modes goes on as hami-core beside it.
func Decide(f Facts) Decision {
	if len(f.Holders) > 0 {
		return Decision{Why: busy(f)}
	}
	var d Decision
	for _, m := range f.Switched {
		if m != f.Wanted && slices.Contains(f.Entered, m) {
			d.Steps = append(d.Steps, Step{Mode: m, Leave: true})
		}
	}
	if slices.Contains(f.Switched, f.Wanted) && !(f.Settled && slices.Contains(f.Entered, f.Wanted)) {
		d.Steps = append(d.Steps, Step{Mode: f.Wanted})
	}
	return d
}

// busy says who keeps the device in another mode, "" if nobody does. It names a
// few, so that the text stays the same while most of the others go: it is published.
func busy(f Facts) string {
	const named = 3
	var pods []string
	var modes []string
	plain := f.Wanted == sharing.HAMiCore && len(f.Entered) == 0
	for _, h := range f.Holders {
		if h.Mode == f.Wanted || h.Mode == "" && plain {
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
		return ""
	}
	slices.Sort(pods)
	slices.Sort(modes)
	list := strings.Join(pods[:min(len(pods), named)], ", ")
	if len(pods) > named {
		list += " and others"
	}
	return fmt.Sprintf("its mode becomes %s when the pods that hold it in %s are gone: %s", f.Wanted, strings.Join(modes, " and "), list)
}
