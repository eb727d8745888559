// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"deviceshare/sharing"
)

// Board holds the node's current inventory and tells its readers when it
// changed. It is safe for concurrent use. What was seen once stays on the board:
// a device the driver no longer lists is published as broken, because pods hold
// shares of it.
type Board struct {
	node string

	mu       sync.Mutex
	found    []Found
	settings Settings
	sick     map[sharing.DeviceID]string // why, for devices that are not healthy
	absent   map[sharing.DeviceID]bool   // seen by an earlier scan, not by the last
	// first is why a device that does not work was found broken first: what the
	// driver says of it may change from one look to the next, and the node is not
	// written each time.
	first    map[sharing.DeviceID]string
	standing map[sharing.DeviceID]Standing
	ready    bool // a scan has succeeded
	shown    bool // current has been announced
	current  sharing.Inventory
	working  sharing.Inventory
	readers  []chan struct{}
}

// Standing is how far a device is on the way into its mode: the mode it is ready
// for pods in, or "" and why it is in none.
type Standing struct {
	Mode sharing.Mode
	Why  string
}

// NewBoard returns an empty board with these settings.
func NewBoard(node string, s Settings) *Board {
	empty := sharing.Inventory{Node: node}
	return &Board{
		node: node, settings: s, sick: map[sharing.DeviceID]string{}, first: map[sharing.DeviceID]string{},
		standing: map[sharing.DeviceID]Standing{}, current: empty, working: empty,
	}
}

// Inventory returns the current inventory and whether there has been a scan. The
// value is shared: it must not be changed.
func (b *Board) Inventory() (sharing.Inventory, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current, b.ready
}

// Working is the inventory as far as the devices themselves go: those that work
// are healthy in it, whether or not they can be used in the mode they are given
// now. Containers that have begun depend on no more. It is shared: it must not be
// changed.
func (b *Board) Working() (sharing.Inventory, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.working, b.ready
}

// Usable is the inventory in which a device is healthy that works and can be used
// in its mode, be it on the way there. What the kubelet is offered as devices goes
// by it: a device that waits for its pods to end must not be taken out of the sums
// that these pods are counted in.
func (b *Board) Usable() (sharing.Inventory, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	usable := b.working
	usable.Devices = slices.Clone(b.working.Devices)
	for i := range b.found {
		f := &b.found[i]
		if b.unfit(f, b.settings.Device(f)) == "" {
			continue
		}
		for k := range usable.Devices {
			if usable.Devices[k].ID == f.UUID {
				usable.Devices[k].Healthy = false
			}
		}
	}
	return usable, b.ready
}

// Given reports whether somebody gave a device its mode, rather than that it is the
// default; false for a device that is not there.
func (b *Board) Given(id sharing.DeviceID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.found {
		if b.found[i].UUID == id {
			return b.settings.Device(&b.found[i]).Given
		}
	}
	return false
}

// Minor returns the number of a device's node.
func (b *Board) Minor(id sharing.DeviceID) (int, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.found {
		if b.found[i].UUID == id {
			return b.found[i].Minor, true
		}
	}
	return 0, false
}

// Sick returns why devices are broken.
func (b *Board) Sick() map[sharing.DeviceID]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	sick := maps.Clone(b.sick)
	for id := range b.absent {
		if sick[id] == "" {
			sick[id] = "the driver no longer lists it"
		}
	}
	return sick
}

// Unfit returns why devices cannot be used in their mode, except for those that
// are on the way into it.
func (b *Board) Unfit() map[sharing.DeviceID]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	unfit := map[sharing.DeviceID]string{}
	for i := range b.found {
		f := &b.found[i]
		offer := b.settings.Device(f)
		if why := b.unfit(f, offer); why != "" && !offer.Hidden {
			unfit[f.UUID] = why
		}
	}
	return unfit
}

// Hold is why nothing may be concluded from the settings, "" if it may.
func (b *Board) Hold() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.settings.Hold
}

// Movable returns the devices that somebody may bring into their modes: they work
// and can be used in them, and the modes are those the administrator wants.
func (b *Board) Movable() []sharing.Device {
	b.mu.Lock()
	defer b.mu.Unlock()
	var devices []sharing.Device
	if b.settings.Hold != "" {
		return nil
	}
	for i := range b.found {
		f := &b.found[i]
		offer := b.settings.Device(f)
		d, listed := b.working.Device(f.UUID)
		if listed && d.Healthy && Unfit(f, offer.Mode, b.settings) == "" {
			devices = append(devices, *d)
		}
	}
	return devices
}

// Changes returns a channel that holds a token after every change, and one at once
// if there has been a scan. A slow reader sees one token for several changes. stop
// ends it.
func (b *Board) Changes() (changes <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan struct{}, 1)
	if b.ready {
		c <- struct{}{}
	}
	b.readers = append(b.readers, c)
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.readers = slices.DeleteFunc(b.readers, func(x chan struct{}) bool { return x == c })
	}
}

// SetSettings takes over new settings.
func (b *Board) SetSettings(s Settings) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settings = s
	b.rebuild()
}

// SetFound takes over a scan. Devices of earlier scans that are missing stay.
func (b *Board) SetFound(found []Found) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = true
	merged := slices.Clone(found)
	b.absent = map[sharing.DeviceID]bool{}
	for i := range b.found {
		old := b.found[i]
		gone := !slices.ContainsFunc(found, func(f Found) bool { return f.UUID == old.UUID })
		replaced := slices.ContainsFunc(found, func(f Found) bool { return f.PCI == old.PCI })
		if gone && !replaced {
			merged = append(merged, old)
			b.absent[old.UUID] = true
		}
	}
	b.found = merged
	b.rebuild()
}

// SetSick takes over which devices are broken, and why.
func (b *Board) SetSick(sick map[sharing.DeviceID]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sick = maps.Clone(sick)
	b.rebuild()
}

// SetStanding takes over how far a device is on the way into its mode.
func (b *Board) SetStanding(id sharing.DeviceID, s Standing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.standing[id] = s
	b.rebuild()
}

// broken says why a device does not work, "" if it does.
func (b *Board) broken(f *Found, _ Offer) string {
	why, sick := b.sick[f.UUID]
	switch {
	case !sick && !b.absent[f.UUID]:
		delete(b.first, f.UUID)
		return ""
	case b.first[f.UUID] != "":
	case sick && why != "":
		b.first[f.UUID] = why
	case sick:
		b.first[f.UUID] = "it does not work"
	default:
		b.first[f.UUID] = "the driver no longer lists it"
	}
	return b.first[f.UUID]
}

// unfit says why a device cannot be used in the mode it is given. What it is to be
// used in must be known for that.
func (b *Board) unfit(f *Found, offer Offer) string {
	if b.settings.Hold != "" {
		return ""
	}
	return Unfit(f, offer.Mode, b.settings)
}

// unready says why a device gets no pods, "" if it does.
func (b *Board) unready(f *Found, offer Offer) string {
	if why := b.broken(f, offer); why != "" {
		return why
	}
	if b.settings.Hold != "" {
		return b.settings.Hold
	}
	if why := Unfit(f, offer.Mode, b.settings); why != "" {
		return why
	}
	s := b.standing[f.UUID]
	switch {
	case b.settings.Switches == nil || s.Mode == offer.Mode:
		return ""
	case s.Why != "":
		return s.Why
	}
	return fmt.Sprintf("it has not been brought into mode %s yet", offer.Mode)
}

// rebuild computes the inventory and wakes the readers if it differs.
func (b *Board) rebuild() {
	next := Inventory(b.node, b.found, b.unready, b.settings)
	working := Inventory(b.node, b.found, b.broken, b.settings)
	for i := range b.found {
		f := &b.found[i]
		offer := b.settings.Device(f)
		onTheWay := b.settings.Hold == "" && b.broken(f, offer) == "" && Unfit(f, offer.Mode, b.settings) == ""
		if d, listed := next.Device(f.UUID); listed {
			d.Changing = onTheWay && !d.Healthy
		}
	}
	if !b.ready || (b.shown && reflect.DeepEqual(next, b.current) && reflect.DeepEqual(working, b.working)) {
		return
	}
	b.current, b.working, b.shown = next, working, true
	for _, c := range b.readers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
