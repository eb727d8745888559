// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// oracle computes conditions from the whole history of one process, each time from
// the beginning. It knows the rules as docs/modes.md and docs/operate.md tell
// them, and nothing of how the product computes.
type oracle struct{ history []node.Event }

func (o *oracle) add(e node.Event) { o.history = append(o.history, e) }

// condition is what should be known of a card.
func (o *oracle) condition(c node.Facts) (node.Condition, bool) {
	first, present := -1, false
	for i, e := range o.history {
		if scan, ok := e.(node.Scanned); ok {
			present = slices.ContainsFunc(scan.Devices, func(f node.Facts) bool { return f.UUID == c.UUID })
			if present && first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return node.Condition{}, false
	}
	switch why, broken := o.broken(c, first); {
	case !present:
		return node.Condition{Kind: node.Absent, Detail: why}, true
	case broken:
		return node.Condition{Kind: node.Broken, Detail: why}, true
	}
	mode, lost := o.wanted(c, len(o.history))
	switch {
	case mode == hidden:
		return node.Condition{Kind: node.Hidden, Detail: "the node configuration does not offer it"}, true
	case o.runtime() != "":
		return node.Condition{Kind: node.Unenforced, Detail: o.runtime()}, true
	case lost != "":
		return node.Condition{Kind: node.ConfigUnknown, Detail: lost}, true
	case mode == sharing.MIG && c.Model != "A100":
		return node.Condition{Kind: node.Unsupported, Detail: "its mode is mig and it cannot be partitioned: give it another mode in the node configuration"}, true
	case mode == sharing.MPS && c.Model == "P4":
		return node.Condition{Kind: node.Unsupported, Detail: "its mode is mps and it is older than Volta, where MPS holds no client to a limit: give it another mode in the node configuration"}, true
	}
	if o.leaves(c, len(o.history)) {
		if now := o.moving(c, mode); now.Kind != node.Ready {
			return now, true
		}
		return node.Condition{Kind: node.Waiting, Detail: releasing}, true
	}
	if why := o.lacks(c, mode, len(o.history)); why != "" {
		return node.Condition{Kind: node.Interrupted, Detail: why}, true
	}
	return o.moving(c, mode), true
}

const releasing = "the driver of this node is to be released, and is still in use"

// leaves is whether a card of mode mps gives that up, so that the driver can be let go.
func (o *oracle) leaves(c node.Facts, until int) bool {
	given, _ := o.given(c, until)
	return given == sharing.MPS && o.claimed(until) == releasing
}

// lacks is what a card lacks for a mode after some of the history, "" if nothing.
func (o *oracle) lacks(c node.Facts, mode sharing.Mode, until int) (why string) {
	if claimed := o.claimed(until); claimed != "" {
		return claimed
	}
	if by := o.offeredBy(c, until); by != "" {
		return by
	}
	for _, e := range o.history[:until] {
		switch e := e.(type) {
		case node.ServiceLost:
			if e.Mode == mode {
				why = e.Why
			}
		case node.ServiceBack:
			if e.Mode == mode {
				why = ""
			}
		}
	}
	return why
}

// offeredBy is the first of the others that offers a card, "" if none does.
func (o *oracle) offeredBy(c node.Facts, until int) (by string) {
	for _, e := range o.history[:until] {
		if others, ok := e.(node.OfferedByOthers); ok {
			by = ""
			for i := len(others.Offers) - 1; i >= 0; i-- {
				if strings.Contains(strings.Join(others.Offers[i].IDs, " "), string(c.UUID)) {
					by = "another device plugin of this node offers it, too, as " + others.Offers[i].Resource
					if driver := others.Offers[i].Driver; driver != "" {
						by = "DRA driver " + driver + " offers it, too, in a ResourceSlice"
					}
				}
			}
		}
	}
	return by
}

// claimed is why the driver is to be let alone after some of the history, "" if it is not.
func (o *oracle) claimed(until int) string {
	state, wanted, gone := "", false, false
	for _, e := range o.history[:until] {
		switch e := e.(type) {
		case node.Labelled:
			state = e.Labels["nvidia.com/gpu-driver-upgrade-state"]
		case node.DriverWanted:
			wanted = e.Is
		case node.DriverGone:
			gone = e.Is
		}
	}
	switch {
	case gone:
		return "the device plugin has released the driver of this node: new pods wait until it uses it again"
	case wanted:
		return releasing
	case strings.HasSuffix(state, "-required") && state != "upgrade-required":
		return "NVIDIA's GPU operator replaces the driver of this node (label nvidia.com/gpu-driver-upgrade-state): new pods wait until it has"
	}
	return ""
}

// runtime is what is the matter with the container runtime, "" if nothing is.
func (o *oracle) runtime() (why string) {
	for _, e := range o.history {
		switch e := e.(type) {
		case node.Troubled:
			if e.Part == node.PartRuntime {
				why = e.Why
			}
		case node.Recovered:
			if e.Part == node.PartRuntime {
				why = ""
			}
		}
	}
	return why
}

// broken says since the first cause of the present trouble what that was.
func (o *oracle) broken(c node.Facts, first int) (why string, is bool) {
	silent, listed, faults := false, true, []node.Moment(nil)
	begin := func(text string) {
		if !silent && len(faults) == 0 {
			why = text
		}
	}
	for _, e := range o.history[first:] {
		switch e := e.(type) {
		case node.Scanned:
			listed = slices.ContainsFunc(e.Devices, func(f node.Facts) bool { return f.UUID == c.UUID })
			if !listed {
				begin("the driver no longer lists it")
				silent = true
			}
		case node.DriverFailed:
			begin(e.Why)
			silent = true
		case node.Silent:
			if e.Device == c.UUID {
				begin(e.Why)
				silent = true
			}
		case node.Faulted:
			if e.XID == 79 && (e.Device == "" || e.Device == c.UUID) {
				begin("critical error XID 79")
				faults = append(faults, e.At)
			}
		case node.Answered:
			if e.Device == c.UUID && listed {
				silent = false
				if n := len(faults); n > 0 && e.At >= faults[n-1]+60 {
					faults = nil
				}
			}
		}
	}
	return why, silent || len(faults) > 0
}

// wanted is the mode a card is to be in after some of the history, and why that is not known.
func (o *oracle) wanted(c node.Facts, until int) (mode sharing.Mode, lost string) {
	mode, lost = o.given(c, until)
	if o.leaves(c, until) {
		mode = sharing.HAMiCore
	}
	return mode, lost
}

// given is the mode a card is given after some of the history, and why that is not known.
func (o *oracle) given(c node.Facts, until int) (mode sharing.Mode, lost string) {
	for _, e := range o.history[:until] {
		var s node.Settings
		switch e := e.(type) {
		case node.Configured:
			s, lost = e.Settings, ""
		case node.ConfigLost:
			s, lost = e.Settings, e.Why
		default:
			continue
		}
		m := s.Offers.(modes)
		if mode = m.given[c.UUID]; mode == "" {
			mode = m.byDefault
		}
	}
	return mode, lost
}

// moving is how far a card is on its way into a mode: the last look or step decides,
// if it was for this mode.
func (o *oracle) moving(c node.Facts, mode sharing.Mode) node.Condition {
	unchecked := node.Condition{Kind: node.Unchecked, Detail: fmt.Sprintf("it has not been brought into mode %s yet", mode)}
	last, is := sharing.Mode(""), unchecked
	failure := node.Condition{} // of the attempts in a row for the mode in failed
	failed, settled := sharing.Mode(""), sharing.Mode("")
	for i, e := range o.history {
		before := oracle{o.history[:i]}
		now, known := before.mayChange(c)
		touchable := known && now
		at, _ := o.wanted(c, i)
		switch e := e.(type) {
		case node.Looked:
			if e.Device != c.UUID || !touchable {
				break
			}
			last = at
			is = seen(e, at, settled == at, failure, failed)
			switch is.Kind {
			case node.Ready:
				failed = ""
			case node.Waiting:
				failed, settled = "", ""
			default:
				settled = ""
			}
		case node.LookFailed:
			if e.Device == c.UUID && touchable {
				last, failed, is = at, at, node.Condition{Kind: node.Failing, Detail: e.Why}
				failure = is
			}
		case node.ModeEntered:
			if e.Device == c.UUID {
				last, settled, failed, is = e.Mode, e.Mode, "", node.Condition{Kind: node.Ready}
			}
		case node.ChangeFailed:
			if e.Device == c.UUID {
				last, failed, is = e.Mode, e.Mode, node.Condition{Kind: node.Failing, Detail: e.Why}
				if e.Manual {
					is.Kind = node.NeedsAdministrator
				}
				failure = is
			}
		}
		after := oracle{o.history[:i+1]}
		if now, known := after.mayChange(c); known && !now {
			failed, settled = "", ""
		}
	}
	if last != mode {
		return unchecked
	}
	return is
}

// mayChange is whether a card may be changed, from scratch, and whether it is known.
func (o *oracle) mayChange(c node.Facts) (touchable, known bool) {
	first, present := -1, false
	for i, e := range o.history {
		if scan, ok := e.(node.Scanned); ok {
			present = slices.ContainsFunc(scan.Devices, func(f node.Facts) bool { return f.UUID == c.UUID })
			if present && first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return false, false
	}
	_, broken := o.broken(c, first)
	mode, lost := o.wanted(c, len(o.history))
	unsupported := mode == sharing.MIG && c.Model != "A100" || mode == sharing.MPS && c.Model == "P4"
	return present && !broken && mode != hidden && lost == "" && o.runtime() == "" && !unsupported && (o.leaves(c, len(o.history)) || o.lacks(c, mode, len(o.history)) == ""), true
}

// seen is what follows from a look: pods in another mode keep the device, else it is
// changed if it is in any mode that is not wanted, or not surely in the one that is.
func seen(e node.Looked, wanted sharing.Mode, settled bool, failure node.Condition, failed sharing.Mode) node.Condition {
	var others []string
	held := map[string]bool{}
	for _, h := range e.Holders {
		if h.Mode != wanted && !slices.Contains(others, h.Pod) {
			others = append(others, h.Pod)
			held["mode "+string(h.Mode)] = true
		}
	}
	if len(others) > 0 {
		var modes []string
		for m := range held {
			modes = append(modes, m)
		}
		slices.Sort(modes)
		slices.Sort(others)
		names := strings.Join(others, ", ")
		if len(others) > 3 {
			names = strings.Join(others[:3], ", ") + " and others"
		}
		return node.Condition{Kind: node.Waiting, Detail: fmt.Sprintf(
			"its mode becomes %s when the pods that hold it in %s are gone: %s", wanted, strings.Join(modes, " and "), names)}
	}
	isState := wanted == sharing.MIG || wanted == sharing.MPS
	there := !isState && len(e.Entered) == 0 || isState && settled && slices.Equal(e.Entered, []sharing.Mode{wanted})
	switch {
	case len(e.Holders) > 0 || there:
		return node.Condition{Kind: node.Ready}
	case failed == wanted:
		return failure
	}
	return node.Condition{Kind: node.Changing, Detail: fmt.Sprintf("it is being brought into mode %s", wanted)}
}

// told is what people were told, and complains about what they know already.
type told struct {
	t       *testing.T
	broken  map[sharing.DeviceID]bool
	reached map[sharing.DeviceID]sharing.Mode
	waits   map[sharing.DeviceID]sharing.Mode
	fails   map[sharing.DeviceID]string
	unfit   map[sharing.DeviceID]node.Notice
	lacks   map[sharing.DeviceID]node.Notice
	twice   map[sharing.DeviceID]string // as what others offer a device
	parts   map[node.Part]string
	pods    map[sharing.Owner]bool
	config  string
	claimed string
}

func newTold(t *testing.T) *told {
	return &told{
		t: t, broken: map[sharing.DeviceID]bool{}, reached: map[sharing.DeviceID]sharing.Mode{}, waits: map[sharing.DeviceID]sharing.Mode{},
		fails: map[sharing.DeviceID]string{}, unfit: map[sharing.DeviceID]node.Notice{}, lacks: map[sharing.DeviceID]node.Notice{}, twice: map[sharing.DeviceID]string{}, parts: map[node.Part]string{}, pods: map[sharing.Owner]bool{},
	}
}

func (k *told) hear(notices []node.Notice, s node.State) {
	for _, n := range notices {
		id, twice := n.Device, false
		switch n.Kind {
		case node.DeviceBroke, node.DeviceWorks:
			twice, k.broken[id] = k.broken[id] == (n.Kind == node.DeviceBroke), n.Kind == node.DeviceBroke
		case node.ModeReached:
			twice, k.reached[id] = k.reached[id] == n.Mode, n.Mode
		case node.ModeWaits:
			twice, k.waits[id] = k.waits[id] == n.Mode, n.Mode
		case node.ModeFailed, node.ModeByHand:
			text := string(n.Mode) + n.Detail
			twice, k.fails[id] = k.fails[id] == text, text
		case node.ModeUnusable:
			twice, k.unfit[id] = k.unfit[id].Detail == n.Detail, n
		case node.ModeInterrupted:
			twice, k.lacks[id] = k.lacks[id].Detail == n.Detail && k.lacks[id].Mode == n.Mode, n
		case node.ModeRestored:
			twice = k.lacks[id].Detail == ""
			delete(k.lacks, id)
		case node.DeviceContested, node.DeviceUncontested:
			twice, k.twice[id] = k.twice[id] == n.Detail, n.Detail
		case node.ConfigUnusable, node.ConfigUsable:
			twice, k.config = k.config == n.Detail, n.Detail
		case node.PartFailed, node.PartWorks:
			twice, k.parts[n.Part] = k.parts[n.Part] == n.Detail, n.Detail
		case node.DriverPlanned:
			twice = k.claimed != "" // the operator may change its mind, which is not told
		case node.DriverClaimed:
			twice, k.claimed = k.claimed == n.Detail, n.Detail
		case node.DriverReturned:
			twice, k.claimed = k.claimed == "", ""
		case node.PodMisplaced:
			twice, k.pods[n.Pod.Owner] = k.pods[n.Pod.Owner], true
		}
		if twice {
			k.t.Errorf("told twice: %+v", n)
		}
	}
	k.forget(s)
}

// forget drops what has ended and may be told again.
func (k *told) forget(s node.State) {
	inv := s.Inventory()
	for _, id := range s.IDs() {
		c, _ := s.Condition(id)
		if c.Kind == node.Ready || c.Kind == node.Changing {
			delete(k.waits, id)
		}
		if c.Kind != node.Failing && c.Kind != node.NeedsAdministrator {
			delete(k.fails, id)
		}
		d, listed := inv.Device(id)
		if _, lost := s.ConfigUnknown(); lost || !listed || d.Mode != k.unfit[id].Mode {
			delete(k.unfit, id)
		}
		if _, lost := s.ConfigUnknown(); lost || !listed || d.Mode != k.lacks[id].Mode {
			delete(k.lacks, id)
		}
	}
}
