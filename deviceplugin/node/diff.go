// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"deviceshare/sharing"
)

// NoticeKind is what a notice tells.
type NoticeKind uint8

// The kinds of notices.
const (
	// DeviceBroke: the device gets no new pods.
	DeviceBroke NoticeKind = iota
	// DeviceWorks: it was broken and works again.
	DeviceWorks
	// ModeUnusable: this node cannot offer the device in its mode.
	ModeUnusable
	// ModeInterrupted: something that the device's mode needs does not work.
	ModeInterrupted
	// ModeRestored: it works again.
	ModeRestored
	// ModeWaits: the device keeps its mode because of Holders.
	ModeWaits
	// ModeReached: the device was brought into its mode.
	ModeReached
	// ModeFailed: the device could not be brought into its mode; it is tried again.
	ModeFailed
	// ModeByHand: only an administrator can bring the device into its mode.
	ModeByHand
	// ConfigUnusable: it is not known what the administrator wants.
	ConfigUnusable
	// ConfigUsable: it is known again.
	ConfigUsable
	// PartFailed: Part fails.
	PartFailed
	// PartWorks: Part works again.
	PartWorks
	// PodMisplaced: Pod can never start here as it was placed.
	PodMisplaced
	// OfferExceeded: Pods hold more of the device, or of the node, than it wants to offer.
	OfferExceeded
	// OfferMet: they no longer do.
	OfferMet
	// DriverPlanned: the driver will be replaced. Pods are those that hold devices.
	DriverPlanned
	// DriverClaimed: the driver is being replaced. Pods are those that hold devices.
	DriverClaimed
	// DriverReturned: it is no longer.
	DriverReturned
	// DeviceContested: somebody else offers the device, too, as Detail says. Pods are those that
	// hold shares of it.
	DeviceContested
	// DeviceUncontested: it is no longer, or we do not offer it any more.
	DeviceUncontested
	// DeviceUnlicensed: the device is a vGPU without a licence, or with one that ends soon.
	DeviceUnlicensed
	// DeviceLicensed: it has one again.
	DeviceLicensed
	noticeKinds = iota
)

// String is the kind for scenarios and logs.
func (k NoticeKind) String() string {
	return [noticeKinds]string{
		"DeviceBroke", "DeviceWorks", "ModeUnusable", "ModeInterrupted", "ModeRestored", "ModeWaits", "ModeReached", "ModeFailed", "ModeByHand",
		"ConfigUnusable", "ConfigUsable", "PartFailed", "PartWorks", "PodMisplaced", "OfferExceeded", "OfferMet",
		"DriverPlanned", "DriverClaimed", "DriverReturned", "DeviceContested", "DeviceUncontested", "DeviceUnlicensed", "DeviceLicensed",
	}[k]
}

// Notice is one thing to tell people. It is told once: what Diff returned for one
// pair of states it does not return for the next, unless it ended in between.
type Notice struct {
	Kind NoticeKind
	// Device is set in notices about a device: its id, index and wanted mode.
	Device sharing.DeviceID
	Index  int
	Mode   sharing.Mode
	Part   Part
	// Pod is set in PodMisplaced.
	Pod    Misplaced
	Detail string
	// Ends is when the licence of DeviceUnlicensed ends, in seconds since 1970; 0 without one.
	Ends int64
	// Holders keep the device as it is, those in the wanted mode among them.
	Holders []Holder
	// Pods are those that OfferExceeded is about, without those of an earlier notice, or that hold
	// devices of the node.
	Pods []Holding
}

// Diff returns what became different between two states one after the other, in
// the order of devices.
func Diff(before, after State) []Notice {
	var all []Notice
	switch {
	case after.unknown.is && after.unknown != before.unknown:
		all = append(all, Notice{Kind: ConfigUnusable, Detail: after.unknown.why})
	case before.unknown.is && !after.unknown.is:
		all = append(all, Notice{Kind: ConfigUsable})
	}
	for _, t := range after.troubles {
		if !slices.Contains(before.troubles, t) {
			all = append(all, Notice{Kind: PartFailed, Part: t.part, Detail: t.why})
		}
	}
	for _, t := range before.troubles {
		if !slices.ContainsFunc(after.troubles, func(x trouble) bool { return x.part == t.part }) {
			all = append(all, Notice{Kind: PartWorks, Part: t.part})
		}
	}
	all = append(all, claimNotices(&before, &after)...)
	all = append(all, misplacedNotices(&before, &after)...)
	all = append(all, overhangNotices(&before, &after)...)
	for i := range after.devices {
		d := &after.devices[i]
		old := before.findDevice(d.facts.UUID)
		if old == nil {
			old = &device{}
		}
		n := Notice{Device: d.facts.UUID, Index: d.facts.Index, Mode: after.offerOf(d).Mode}
		all = append(all, healthNotices(n, old, d)...)
		all = append(all, contestNotices(n, &before, old, &after, d)...)
		all = append(all, licenceNotices(n, &before, old, &after, d)...)
		if !after.offerOf(d).Hidden {
			all = append(all, modeNotices(n, &before, old, &after, d)...)
		}
	}
	return all
}

func healthNotices(n Notice, old, d *device) []Notice {
	switch was, is := old.health.isBroken(), d.health.isBroken(); {
	case is && !was:
		n.Kind, n.Detail = DeviceBroke, d.health.cause
	case was && !is:
		n.Kind = DeviceWorks
	default:
		return nil
	}
	return []Notice{n}
}

func modeNotices(n Notice, before *State, old *device, after *State, d *device) []Notice {
	var all []Notice
	tell := func(kind NoticeKind, detail string, holders []Holder) {
		n := n
		n.Kind, n.Detail, n.Holders = kind, detail, holders
		all = append(all, n)
	}
	if why, is := after.unusableReason(d); is {
		if earlier, was := before.unusableReason(old); !was || earlier != why {
			tell(ModeUnusable, why, nil)
		}
	}
	why, is := after.deviceInterruption(d)
	same := before.offerOf(old).Mode == n.Mode
	switch earlier, was := before.deviceInterruption(old); {
	case is && !(was && same && earlier == why):
		tell(ModeInterrupted, why, nil)
	case was && !is && same:
		tell(ModeRestored, "", nil)
	}
	return append(all, changeNotices(n, &old.change, &d.change)...)
}

// changeNotices are about how far the device is on its way into its mode.
func changeNotices(n Notice, was, is *modeChange) []Notice {
	var all []Notice
	tell := func(kind NoticeKind, detail string, holders []Holder) {
		n := n
		n.Kind, n.Detail, n.Holders = kind, detail, holders
		all = append(all, n)
	}
	if is.waitsFor != "" && is.waitsFor != was.waitsFor {
		tell(ModeWaits, is.verdict.condition.Detail, is.verdict.holders)
	}
	if is.failure.attempts > 0 && (is.failure.why != was.failure.why || is.failure.wanted != was.failure.wanted) {
		kind := ModeFailed
		if is.failure.kind == NeedsAdministrator {
			kind = ModeByHand
		}
		tell(kind, is.failure.why, nil)
	}
	if was.arrived.known && is.arrived != was.arrived {
		n.Mode = is.arrived.mode
		tell(ModeReached, "", nil)
	}
	return all
}

// deviceInterruption says what the mode of an offered device lacks, whether or not the device
// works.
func (s *State) deviceInterruption(d *device) (why string, is bool) {
	mode := s.offerOf(d).Mode
	if _, not := s.cfg.Powers.unsupportedReason(&d.facts, mode); not || !s.isWanted(d) {
		return "", false
	}
	return s.modeInterruption(mode)
}

// isWanted reports whether it is known that a device is to be offered.
func (s *State) isWanted(d *device) bool {
	return !s.unknown.is && s.isOffered(d)
}

// isOffered reports whether a device is to be offered by the settings in force.
func (s *State) isOffered(d *device) bool {
	return d.facts.UUID != "" && d.presence != replaced && !s.offerOf(d).Hidden
}

// unusableReason says why an offered device cannot be used in its mode, whether or not it
// works. What it is to be used in must be known for that.
func (s *State) unusableReason(d *device) (why string, is bool) {
	if !s.isWanted(d) {
		return "", false
	}
	return s.cfg.Powers.unsupportedReason(&d.facts, s.offerOf(d).Mode)
}
