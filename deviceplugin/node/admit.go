// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
)

// Ask is a container that is about to start, as the kubelet, its spec and the scheduler
// describe it.
type Ask struct {
	Owner     sharing.Owner
	Container string
	Slots     int // of the kubelet's resource that it holds
	// Placement is what its pod holds: see Held.
	Placement sharing.Placement
	// Requests is what the containers of its pod ask for; nil if that cannot be read.
	Requests []sharing.Request
	// Isolation is how far its pod's containers are apart from the node.
	Isolation podspec.Isolation
}

// Claim is what a container may start with: its shares with the devices they are
// of, in PCI order, all in one mode.
type Claim struct {
	Kind    sharing.ContainerKind
	Mode    sharing.Mode
	Devices []modes.ClaimedDevice
}

// RefusalReason is why a container may not start.
type RefusalReason uint8

// The reasons.
const (
	// NothingGiven: the scheduler gave the container no devices.
	NothingGiven RefusalReason = iota
	// OtherCount: scheduler and kubelet gave different numbers of devices.
	OtherCount
	// UnknownDevice: a device is not on this node any more, or hidden.
	UnknownDevice
	// DeviceUnread: a device is not known, and it is not known either whether all were read.
	DeviceUnread
	// MixedModes: the container's shares are in several modes.
	MixedModes
	// ModeUnserved: this node cannot prepare containers in the mode.
	ModeUnserved
	// DeviceBroken: a device of the container does not work.
	DeviceBroken
	// NoNewPods: it is not known what the administrator wants.
	NoNewPods
	// OtherMode: a device of the pod has been given another mode since.
	OtherMode
	// OtherGeometries: the partitions were chosen under other geometries.
	OtherGeometries
	// NotReady: a device of the pod is not ready in its mode yet.
	NotReady
	// NotEnforced: the container might start without its devices and limits.
	NotEnforced
	// OtherAmounts: the pod was given more than it asks for.
	OtherAmounts
	// PlacementWrong: the pod was given more than the devices have, or some of it twice.
	PlacementWrong
	// DeviceTaken: the pod was given what another one has.
	DeviceTaken
	// PodUnfit: containers of such a pod would not get, or could not use, what they are given.
	PodUnfit
	refusalReasons = iota
)

// String is the reason for scenarios and logs.
func (r RefusalReason) String() string {
	return [refusalReasons]string{
		"NothingGiven", "OtherCount", "UnknownDevice", "DeviceUnread", "MixedModes", "ModeUnserved", "DeviceBroken",
		"NoNewPods", "OtherMode", "OtherGeometries", "NotReady", "NotEnforced", "OtherAmounts", "PlacementWrong", "DeviceTaken",
		"PodUnfit",
	}[r]
}

// Refusal says that a container may not start, and why. It is a decision, not a
// failure.
type Refusal struct {
	Reason RefusalReason
	Detail string // for people
	// Hope is when the container starts after all, for people; "" if nothing can be said.
	Hope string
}

// String is the refusal for people.
func (r *Refusal) String() string {
	if r.Hope == "" {
		return r.Detail
	}
	return r.Detail + "; " + r.Hope
}

// IsFinal reports that trying again does not help: the pod must be placed anew.
func (r *Refusal) IsFinal() bool {
	switch r.Reason {
	case UnknownDevice, OtherMode, OtherGeometries, OtherAmounts, DeviceTaken:
		return true
	}
	return false
}

// IsLimited reports that trying again may help, and that the pod must be placed anew if it does not
// within some time. It is so where the node offers the devices to no pod meanwhile: elsewhere the
// pod would be placed on them again.
func (r *Refusal) IsLimited() bool {
	switch r.Reason {
	case DeviceUnread, DeviceBroken, NotReady, NotEnforced:
		return true
	}
	return false
}

func newRefusal(r RefusalReason, format string, args ...any) *Refusal {
	return &Refusal{Reason: r, Detail: fmt.Sprintf(format, args...)}
}

// withHope is the refusal with when the container starts after all.
func (r *Refusal) withHope(when string) *Refusal {
	r.Hope = when
	return r
}

// Admit decides whether a container may start, and with what. A pod that has begun, of
// which a container was prepared, holds everything it was given, in the modes and
// places it was given, and starts its containers whatever the administrator has
// edited since. running are the pods that have shares of this node's devices. They, a.Requests
// and a.Isolation are not looked at for a pod that has begun. Exactly one of the results is set.
func Admit(s State, a Ask, begun bool, running []Running) (Claim, *Refusal) {
	claim, no := ClaimOf(s, a)
	if no != nil {
		return Claim{}, no
	}
	for i := range claim.Devices {
		if no := s.requireWorking(&claim.Devices[i].Device); no != nil {
			return Claim{}, no
		}
	}
	if !begun {
		if no := s.requireNew(&a, running); no != nil {
			return Claim{}, no
		}
	}
	if serves := s.cfg.Powers.Serves; serves != nil && !slices.Contains(serves, claim.Mode) {
		return Claim{}, newRefusal(ModeUnserved, "this node cannot serve mode %q", claim.Mode)
	}
	return claim, nil
}

// ClaimOf pairs the container's shares with the devices of this node, whether or not
// it may start with them now.
func ClaimOf(s State, a Ask) (Claim, *Refusal) {
	inv := s.Inventory()
	given, ok := a.Placement.Container(a.Container)
	switch {
	case !ok || len(given.Shares) == 0:
		return Claim{}, newRefusal(NothingGiven, "the scheduler gave container %s nothing, the kubelet %d slots", a.Container, a.Slots)
	case len(given.Shares) != a.Slots:
		return Claim{}, newRefusal(OtherCount, "the scheduler gave container %s %d devices, the kubelet %d slots", a.Container, len(given.Shares), a.Slots)
	}
	devices := make([]sharing.Device, 0, len(given.Shares))
	for _, share := range given.Shares {
		d, ok := inv.Device(share.Device)
		switch {
		case !ok:
			return Claim{}, s.refuseUnknown(share.Device)
		case share.Mode != given.Shares[0].Mode:
			return Claim{}, newRefusal(MixedModes, "it has shares of modes %s and %s; one container is served in one mode", given.Shares[0].Mode, share.Mode)
		}
		devices = append(devices, *d)
	}
	claim := Claim{Kind: given.Kind, Mode: given.Shares[0].Mode}
	for _, i := range ByPCI(devices) {
		share := given.Shares[i]
		// A scheduler that does not know what is physically there takes all that is offered for it.
		share.Whole = share.Whole && devices[i].IsWhole(share.Memory, share.Cores)
		claim.Devices = append(claim.Devices, modes.ClaimedDevice{Device: devices[i], Share: share})
	}
	return claim, nil
}

func (s State) requireWorking(d *sharing.Device) *Refusal {
	c, _ := s.Condition(d.ID)
	switch {
	case c.Kind.May().Resume:
		return nil
	case c.Kind == Unenforced:
		return newRefusal(NotEnforced, "no container with devices starts on this node: %s", c.Detail).withHope("the container starts when that is mended")
	}
	return newRefusal(DeviceBroken, "device %s (index %d) is broken (%s)", d.ID, d.Index, c.Detail).withHope("the container starts when it works again")
}

func (s State) refuseUnknown(id sharing.DeviceID) *Refusal {
	d := s.findDevice(id)
	why, isUnread := s.IsUnread()
	switch {
	case isUnread:
		return newRefusal(DeviceUnread, "device %s is not known: %s", id, why).withHope("the container starts when the driver answers")
	case s.settings.Offers == nil:
		return newRefusal(DeviceUnread, "device %s is not known: the configuration has not been read yet", id)
	case d != nil && d.presence == replaced:
		return newRefusal(UnknownDevice, "device %s is not on this node any more: another one is in its place", id)
	case d != nil:
		return newRefusal(UnknownDevice, "device %s is not offered any more: the node configuration hides it", id)
	case s.unread > 0:
		return newRefusal(DeviceUnread, "device %s is not among those that answer; %d do not", id, s.unread).withHope("the container starts when it does")
	}
	return newRefusal(UnknownDevice, "device %s is not on this node", id)
}

// requireNew makes the checks that only a pod meets of which nothing has started. All of
// the placement is looked at, so that a pod is not refused half way.
func (s State) requireNew(a *Ask, running []Running) *Refusal {
	if why, is := s.cfg.Isolation.Refusal(a.Isolation); is {
		return newRefusal(PodUnfit, "the pod cannot have devices: %s", why)
	}
	if why, is := s.ConfigUnknown(); is {
		return newRefusal(NoNewPods, "no container of a new pod starts now: %s", why)
	}
	if no := s.requireCurrent(&a.Placement); no != nil {
		return no
	}
	if no := s.requireAsked(a); no != nil {
		return no
	}
	return s.requireRoom(a, running)
}

// requireCurrent refuses a pod whose devices are not what they were when it was placed.
func (s State) requireCurrent(p *sharing.Placement) *Refusal {
	inv := s.Inventory()
	for i := range p.Containers {
		for _, share := range p.Containers[i].Shares {
			d, ok := inv.Device(share.Device)
			switch {
			case !ok:
				return s.refuseUnknown(share.Device)
			case share.Mode != d.Mode:
				return newRefusal(OtherMode, "device %s is in mode %s now; the pod was placed in %s", d.ID, d.Mode, share.Mode)
			case share.Mode == sharing.MIG && p.GeometryHash != inv.GeometryHash:
				return newRefusal(OtherGeometries, "its partitions were chosen under geometries %q, the node applies %q now", p.GeometryHash, inv.GeometryHash)
			}
			if c, _ := s.Condition(d.ID); !c.Kind.May().Begin {
				return newRefusal(NotReady, "device %s (index %d) takes no pods now: %s", d.ID, d.Index, c.Detail).withHope("the container starts when it does")
			}
		}
	}
	return nil
}
