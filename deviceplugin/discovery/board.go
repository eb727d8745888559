// SPDX-License-Identifier: Apache-2.0

package discovery

import (
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
	ready    bool                        // a scan has succeeded
	shown    bool                        // current has been announced
	current  sharing.Inventory
	readers  []chan struct{}
}

// NewBoard returns an empty board with these settings.
func NewBoard(node string, s Settings) *Board {
	return &Board{node: node, settings: s, sick: map[sharing.DeviceID]string{}, current: sharing.Inventory{Node: node}}
}

// Inventory returns the current inventory and whether there has been a scan. The
// value is shared: it must not be changed.
func (b *Board) Inventory() (sharing.Inventory, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current, b.ready
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

// Unfit returns why devices cannot be used in their mode.
func (b *Board) Unfit() map[sharing.DeviceID]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	unfit := map[sharing.DeviceID]string{}
	for i := range b.found {
		f := &b.found[i]
		offer := b.settings.Device(f)
		if why := Unfit(f, offer.Mode, b.settings.Serves); why != "" && !offer.Hidden {
			unfit[f.UUID] = why
		}
	}
	return unfit
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

// rebuild computes the inventory and wakes the readers if it differs.
func (b *Board) rebuild() {
	healthy := func(id sharing.DeviceID) bool {
		_, broken := b.sick[id]
		return !broken && !b.absent[id]
	}
	next := Inventory(b.node, b.found, healthy, b.settings)
	if !b.ready || (b.shown && reflect.DeepEqual(next, b.current)) {
		return
	}
	b.current, b.shown = next, true
	for _, c := range b.readers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
