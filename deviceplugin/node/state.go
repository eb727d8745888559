// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
)

// Config is what does not change while the plugin runs.
type Config struct {
	Node   string
	Powers Powers
	Health HealthRules
	// Backends account for partitions where shares are added up; see sharing.NewLedger.
	Backends sharing.Backends
	// Isolation is which pods may have devices.
	Isolation podspec.IsolationRules
	// ServesContested has devices take pods that other device plugins of the node offer, too.
	ServesContested bool
}

// State is what is known about the node at one moment. It is immutable: Reduce
// returns a new one. The zero value is of no use; see New.
type State struct {
	cfg      Config
	settings Settings
	unknown  unknownConfig
	scanned  bool
	unread   int // devices that the driver lists and that did not answer the last scan
	devices  []device
	intake   intake
	claim    claim
	// othersOffer is what others offer of the node's devices.
	othersOffer []OtherOffer
	troubles    []trouble
	lost        []lostService
	releases    []Release
	// misplaced are pods that are there and were refused for good.
	misplaced []Misplaced
	holdings  Holdings
	offered   offered
}

// unknownConfig is why it is not known what the administrator wants, if it is not.
type unknownConfig struct {
	is  bool
	why string
}

// device is what is known about one device. Its slices are never written to.
type device struct {
	facts    Facts
	presence presence
	health   health
	change   modeChange
	licence  licence
	// contest says who else offers the device, "" if nobody does.
	contest string
}

// presence is whether the driver lists a device.
type presence uint8

const (
	present presence = iota
	missing          // an earlier scan found it, the last one did not
	// replaced: it is missing and another device is in its slot. It is not published
	// any more; it is remembered, so that it is told when it comes back.
	replaced
)

// New returns the state of a node about which nothing is known.
func New(c Config) State { return State{cfg: c} }

// Scanned reports whether the driver has listed its devices at least once.
func (s State) Scanned() bool { return s.scanned }

// IsUnread reports that the devices have not been read since the plugin was started, and why.
func (s State) IsUnread() (why string, is bool) {
	if s.scanned {
		return "", false
	}
	if why, fails := s.partTrouble(PartDriver); fails {
		return sanitizeReason("the driver cannot be used: " + why), true
	}
	if why, is := s.claim.findReason(); is {
		return why, true
	}
	return "the device plugin was started and has not read the driver yet", true
}

// Node is the name of the node.
func (s State) Node() string { return s.cfg.Node }

// ConfigUnknown reports that it is not known what the administrator wants, and why.
func (s State) ConfigUnknown() (why string, is bool) { return s.unknown.why, s.unknown.is }

// Condition returns the condition of a device that was ever found.
func (s State) Condition(id sharing.DeviceID) (Condition, bool) {
	if d := s.findDevice(id); d != nil {
		return s.conditionOf(d), true
	}
	return Condition{}, false
}

// Facts returns what the driver said of a device, and false if it is not known or
// another one is in its place.
func (s State) Facts(id sharing.DeviceID) (Facts, bool) {
	if d := s.findDevice(id); d != nil && d.presence != replaced {
		return d.facts, true
	}
	return Facts{}, false
}

// IsModeGiven reports whether the administrator gave the device its mode, rather
// than that it is the default; false for a device that is not known.
func (s State) IsModeGiven(id sharing.DeviceID) bool {
	d := s.findDevice(id)
	return d != nil && d.presence != replaced && s.offerOf(d).Given
}

// Inventory returns the offered devices as the scheduler may use them.
func (s State) Inventory() sharing.Inventory {
	inv := s.View(func(p Permissions) bool { return p.Place })
	for i := range inv.Devices {
		c, _ := s.Condition(inv.Devices[i].ID)
		inv.Devices[i].Changing = c.Kind.May().Change && !c.Kind.May().Place
	}
	return inv
}

// View returns the offered devices, healthy where their condition permits what is
// asked for, in ascending index order.
func (s State) View(permitted func(Permissions) bool) sharing.Inventory {
	inv := sharing.Inventory{Node: s.cfg.Node, GeometryHash: s.settings.GeometryHash}
	for i := range s.devices {
		d := &s.devices[i]
		offer := s.offerOf(d)
		if d.presence == replaced || offer.Hidden {
			continue
		}
		published := deviceFromFacts(&d.facts, offer)
		published.Licence = d.licence.asPublished()
		if who := s.cfg.Powers.MPS; offer.Mode == sharing.MPS {
			published.OneUser, published.OneNamespace, published.NoRoot = who.OneUser, who.OneNamespace, who.NoRoot
		}
		condition := s.conditionOf(d)
		published.Healthy = permitted(condition.Kind.May())
		if !published.Healthy {
			published.Reason = sanitizeReason(condition.Detail)
		}
		inv.Devices = append(inv.Devices, published)
	}
	slices.SortFunc(inv.Devices, func(a, b sharing.Device) int { return cmp.Compare(a.Index, b.Index) })
	for i := range inv.Devices {
		inv.Devices[i].Links = offeredLinks(inv.Devices[i].Links, &inv)
	}
	return inv
}

// Changeable returns the devices that may be brought into their modes.
func (s State) Changeable() []sharing.Device {
	inv := s.View(func(p Permissions) bool { return p.Change })
	return slices.DeleteFunc(inv.Devices, func(d sharing.Device) bool { return !d.Healthy })
}

func (s *State) findDevice(id sharing.DeviceID) *device {
	for i := range s.devices {
		if s.devices[i].facts.UUID == id {
			return &s.devices[i]
		}
	}
	return nil
}

// offerOf is how a device is offered; before any settings it is hidden.
func (s *State) offerOf(d *device) Offer {
	if s.settings.Offers == nil {
		return Offer{Hidden: true}
	}
	offer := s.settings.Offers.Offer(&d.facts)
	if s.intake.withdrawing || s.leavesMPS(d) {
		offer.Mode, offer.Given = sharing.HAMiCore, false
	}
	return offer
}

func (s *State) conditionOf(d *device) Condition {
	offer := s.offerOf(d)
	switch {
	case d.presence != present:
		return Condition{Absent, d.health.cause}
	case d.health.isBroken():
		return Condition{Broken, d.health.cause}
	case s.settings.Offers == nil:
		return Condition{ConfigUnknown, "the configuration has not been read yet"}
	case offer.Hidden:
		return Condition{Hidden, "the node configuration does not offer it"}
	}
	if why, is := s.partTrouble(PartRuntime); is {
		return Condition{Unenforced, why}
	}
	if s.unknown.is {
		return Condition{ConfigUnknown, s.unknown.why}
	}
	if why, not := s.cfg.Powers.unsupportedReason(&d.facts, offer.Mode); not {
		return Condition{Unsupported, why}
	}
	if why, is := s.findInterruption(d, offer.Mode); is {
		return Condition{Interrupted, why}
	}
	switch condition := d.change.verdict.condition; {
	case !s.cfg.Powers.Switches:
		return Condition{Kind: Ready}
	case d.change.verdict.wanted == offer.Mode && condition.Kind == Ready && s.leavesMPS(d):
		return Condition{Waiting, driverReleasing}
	case d.change.verdict.wanted == offer.Mode:
		return condition
	}
	return Condition{Unchecked, fmt.Sprintf("it has not been brought into mode %s yet", offer.Mode)}
}

// unsupportedReason says why a device that works cannot be used in a mode on this node,
// if it cannot.
func (p Powers) unsupportedReason(f *Facts, mode sharing.Mode) (why string, is bool) {
	switch {
	case p.Serves != nil && !slices.Contains(p.Serves, mode):
		why = fmt.Sprintf("this node cannot prepare containers in mode %s", mode)
		if because := p.Unserved[mode]; because != "" {
			why += ": " + because
		}
		return why, true
	case mode == sharing.MIG && f.Virtual:
		return "its mode is mig and it is a vGPU: cut it on the host, and give it another mode in the node configuration", true
	case f.Virtual && f.MIG.Enabled:
		return fmt.Sprintf("its mode is %s and it is a vGPU with partitioning (MIG) switched on: have its host give this machine one without", mode), true
	case mode == sharing.MIG && !f.MIG.Capable:
		return "its mode is mig and it cannot be partitioned: give it another mode in the node configuration", true
	case mode == sharing.MPS && f.Compute > 0 && f.Compute < 7:
		return "its mode is mps and it is older than Volta, where MPS holds no client to a limit: give it another mode in the node configuration", true
	case mode != sharing.MIG && f.MIG.Enabled && !slices.Contains(p.Switched, sharing.MIG):
		return fmt.Sprintf("partitioning (MIG) is switched on and its mode is %s: switch it off with nvidia-smi -mig 0, or give it mode mig", mode), true
	}
	return "", false
}
