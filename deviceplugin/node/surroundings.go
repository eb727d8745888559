// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"

	"deviceshare/sharing"
)

// Part is a part of the plugin's surroundings that may be in trouble.
type Part string

// The parts.
const (
	PartDriver     Part = "driver"
	PartKubelet    Part = "kubelet checkpoint"
	PartResources  Part = "podresources"
	PartPublishing Part = "publishing"
	// PartAmounts is the legacy way to offer memory and compute.
	PartAmounts Part = "amounts"
	// PartRuntime is the container runtime. It is in trouble when containers start without what
	// their allocations bring: then no container with devices may start.
	PartRuntime Part = "runtime"
	// PartNVIDIARuntime is NVIDIA's own container runtime. It is in trouble when it gives
	// devices to containers that ask for none. What the plugin gives is held to its limits all
	// the same.
	PartNVIDIARuntime Part = "nvidia-runtime"
)

// trouble is a part that fails, and why.
type trouble struct {
	part Part
	why  string
}

// keepsFirst reports whether a part's trouble is the same whatever the text says.
// The errors of two starts differ in the pod they name.
func (p Part) keepsFirst() bool { return p == PartKubelet || p == PartResources }

func withTrouble(all []trouble, part Part, why string) []trouble {
	i := slices.IndexFunc(all, func(t trouble) bool { return t.part == part })
	switch {
	case i < 0:
		return append(slices.Clip(all), trouble{part, why})
	case part.keepsFirst() || all[i].why == why:
		return all
	}
	all = slices.Clone(all)
	all[i].why = why
	return all
}

// partTrouble says why a part fails, if it does.
func (s *State) partTrouble(part Part) (why string, is bool) {
	for _, t := range s.troubles {
		if t.part == part {
			return t.why, true
		}
	}
	return "", false
}

// Fails reports whether a part is in trouble.
func (s State) Fails(part Part) bool {
	_, is := s.partTrouble(part)
	return is
}

func withoutTrouble(all []trouble, part Part) []trouble {
	return slices.DeleteFunc(slices.Clone(all), func(t trouble) bool { return t.part == part })
}

// Troubled: a part fails.
type Troubled struct {
	Part Part
	Why  string
}

func (e Troubled) applyTo(s *State) { s.troubles = withTrouble(s.troubles, e.Part, e.Why) }

// Recovered: a part works.
type Recovered struct{ Part Part }

func (e Recovered) applyTo(s *State) { s.troubles = withoutTrouble(s.troubles, e.Part) }

// lostService is what a mode needs beside the devices, of which a part does not work.
type lostService struct {
	mode sharing.Mode
	why  string
}

// ServiceLost: something beside the devices that a mode needs does not work.
type ServiceLost struct {
	Mode sharing.Mode
	Why  string
}

func (e ServiceLost) applyTo(s *State) {
	ServiceBack{e.Mode}.applyTo(s)
	s.lost = append(s.lost, lostService{e.Mode, e.Why})
}

// ServiceBack: it works.
type ServiceBack struct{ Mode sharing.Mode }

func (e ServiceBack) applyTo(s *State) {
	s.lost = slices.DeleteFunc(slices.Clone(s.lost), func(x lostService) bool { return x.mode == e.Mode })
}

// ModeServed: a mode that was among Powers.Unserved can be served now.
type ModeServed struct{ Mode sharing.Mode }

func (e ModeServed) applyTo(s *State) {
	p := &s.cfg.Powers
	if _, was := p.Unserved[e.Mode]; !was {
		return
	}
	p.Unserved = maps.Clone(p.Unserved)
	delete(p.Unserved, e.Mode)
	p.Serves = append(slices.Clone(p.Serves), e.Mode)
}

// modeInterruption says what a mode lacks, if it lacks anything.
func (s *State) modeInterruption(mode sharing.Mode) (why string, is bool) {
	for _, x := range s.lost {
		if x.mode == mode {
			return x.why, true
		}
	}
	return "", false
}

// intake is whether the node can take new pods at all.
type intake struct {
	kubelet  bool // the kubelet knows our devices
	stopping bool // the plugin was told to stop
	// withdrawing: the plugins of the whole cluster are being uninstalled.
	withdrawing bool
}

// Kubelet: the kubelet has taken our devices, or has not yet.
type Kubelet struct{ Knows bool }

func (e Kubelet) applyTo(s *State) { s.intake.kubelet = e.Knows }

// Stopping: the plugin was told to stop.
type Stopping struct{}

func (Stopping) applyTo(s *State) { s.intake.stopping = true }

// Withdrawing: the plugins of the cluster are being uninstalled. From now on every device is
// wanted in mode hami-core, which leaves nothing on a device, as if nobody had given it a
// mode: what others have made on it stays.
type Withdrawing struct{}

func (Withdrawing) applyTo(s *State) { s.intake.withdrawing = true }

// IsWithdrawing reports that the plugins of the cluster are being uninstalled.
func (s State) IsWithdrawing() bool { return s.intake.withdrawing }

// IsFinal reports that the plugin ends and that no other one follows: the kubelet is to forget the
// devices.
func (s State) IsFinal() bool { return s.intake.withdrawing && s.intake.stopping }

// IsWithdrawn reports that everything was taken back that can be while the pods run that hold
// devices now: then nothing of the node is to be published any more.
func (s State) IsWithdrawn() bool {
	if !s.intake.withdrawing || !s.scanned || len(s.releases) > 0 {
		return false
	}
	for i := range s.devices {
		switch s.conditionOf(&s.devices[i]).Kind {
		case Unchecked, Changing, Failing:
			return false
		}
	}
	return true
}

// Withheld says why the kubelet would refuse every new pod with devices, if it
// would: a pod that the kubelet has refused has failed for good.
func (s State) Withheld() (why string, is bool) {
	switch {
	case s.intake.withdrawing:
		return "the device plugin is being uninstalled", true
	case s.intake.stopping:
		return "the device plugin of this node was stopped", true
	case !s.intake.kubelet:
		return "the kubelet does not know the devices yet: the device plugin or the kubelet has just started", true
	}
	return "", false
}

// Published is the inventory that the node's annotations carry: no device takes
// pods while the kubelet would refuse them.
func (s State) Published() sharing.Inventory {
	inv := s.Inventory()
	if why, is := s.Withheld(); is {
		for i := range inv.Devices {
			if d := &inv.Devices[i]; d.Healthy {
				d.Healthy, d.Reason = false, why
			}
		}
	}
	return inv
}

// Release is an owner that is gone and may have left something on the node.
type Release struct {
	Owner    sharing.Owner
	Attempts int // that failed
}

// OwnerGone: a pod has ended; what was made for it is to be taken back.
type OwnerGone struct{ Owner sharing.Owner }

func (e OwnerGone) applyTo(s *State) {
	s.misplaced = slices.DeleteFunc(slices.Clone(s.misplaced), Misplaced{Owner: e.Owner}.sameOwner)
	if !slices.ContainsFunc(s.releases, func(r Release) bool { return r.Owner == e.Owner }) {
		s.releases = append(slices.Clip(s.releases), Release{Owner: e.Owner})
	}
}

// Released: everything of an owner was taken back.
type Released struct{ Owner sharing.Owner }

func (e Released) applyTo(s *State) {
	s.releases = slices.DeleteFunc(slices.Clone(s.releases), func(r Release) bool { return r.Owner == e.Owner })
}

// ReleaseFailed: something of an owner could not be taken back.
type ReleaseFailed struct{ Owner sharing.Owner }

func (e ReleaseFailed) applyTo(s *State) {
	s.releases = slices.Clone(s.releases)
	for i := range s.releases {
		if s.releases[i].Owner == e.Owner {
			s.releases[i].Attempts++
		}
	}
}
