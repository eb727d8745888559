// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Ledger is who holds what of one node's devices: placements by owner, and
// nothing else. The views are derived from them and rebuilt for the devices a
// change touches.
type Ledger struct {
	inventory *Inventory
	backends  Backends
	held      map[Owner]Placement
	blocked   map[Owner]struct{}
	views     []View
	// selectsByName: some pod accepts others by their labels or groups.
	selectsByName bool
}

// NewLedger returns the empty ledger of an inventory. Neither the inventory nor the
// backends must be changed afterwards. The backends account for the partitions on
// devices, see NewView; a ledger that nothing is placed on does without them.
func NewLedger(inv *Inventory, b Backends) *Ledger {
	l := &Ledger{inventory: inv, backends: b, held: map[Owner]Placement{}, blocked: map[Owner]struct{}{}}
	l.views = make([]View, len(inv.Devices))
	for i := range inv.Devices {
		l.views[i] = NewView(&inv.Devices[i], nil, b)
	}
	return l
}

// Inventory returns the devices the ledger is about. The caller must not change it.
func (l *Ledger) Inventory() *Inventory { return l.inventory }

// Views returns the devices with what is on them, in inventory order. The caller
// must not change them; they are valid until the next change of the ledger.
func (l *Ledger) Views() []View { return l.views }

// Owners returns who holds something, sorted.
func (l *Ledger) Owners() []Owner { return slices.Sorted(maps.Keys(l.held)) }

// SelectsByName reports whether it depends on the labels or the group of a pod that is not
// selective which devices it may have.
func (l *Ledger) SelectsByName() bool { return l.selectsByName }

// Len is the number of owners that hold something or block the node.
func (l *Ledger) Len() int { return len(l.held) + len(l.blocked) }

// Placement returns what an owner holds.
func (l *Ledger) Placement(o Owner) (Placement, bool) {
	p, ok := l.held[o]
	return p, ok
}

// Reserve notes a decision. It is all or nothing: on an error nothing changed.
// Reserving the same placement for the same owner again changes nothing. It is
// an error if the owner already holds something else, if a device is not in the
// inventory, or if the shares do not fit beside those of others. A decision made on
// this ledger always fits, so such an error is a bug of the caller and not a refusal.
func (l *Ledger) Reserve(o Owner, p Placement) error {
	if old, ok := l.held[o]; ok {
		if samePlacement(old, p) {
			return nil
		}
		return fmt.Errorf("reserve for owner %s on node %s: holds another placement", o, l.inventory.Node)
	}
	if _, ok := l.blocked[o]; ok {
		return fmt.Errorf("reserve for owner %s on node %s: holds shares that cannot be read", o, l.inventory.Node)
	}
	if err := l.Room(o, p); err != nil {
		return fmt.Errorf("reserve for owner %s on node %s: %w", o, l.inventory.Node, err)
	}
	l.addPlacement(o, p)
	return nil
}

// Room reports why shares of an owner that holds nothing do not fit beside those of others, or that
// it must not be beside them, or that a device is not in the inventory; nil if they fit. It changes
// nothing.
func (l *Ledger) Room(o Owner, p Placement) error {
	for i := range l.views {
		v := &l.views[i]
		if !p.Uses(v.Device.ID) {
			continue
		}
		if c, clashes := v.FindClash(&PodRequest{Owner: o, Namespace: p.Namespace, Neighbours: p.Neighbours}); clashes {
			return fmt.Errorf("device %s: must not be beside %s", v.Device.ID, c.Owner)
		}
		w := *v
		w.setShares(appendShares(slices.Clone(v.held), o, &p, v.Device.ID))
		if err := w.checkShares(v, o); err != nil {
			return err
		}
	}
	for i := range p.Containers {
		for _, s := range p.Containers[i].Shares {
			if _, ok := l.inventory.Device(s.Device); !ok {
				return fmt.Errorf("no device %s", s.Device)
			}
		}
	}
	return nil
}

// Record notes a pod that is on the node with this placement, even if it conflicts
// with others. Shares that overlap or exceed a device are kept, so that nothing more
// is given; Check reports them. It replaces what the owner held before.
func (l *Ledger) Record(o Owner, p Placement) {
	l.Release(o)
	l.addPlacement(o, p)
}

// Block notes that an owner is on the node whose shares cannot be read. Until it
// is released nothing on the node counts as free.
func (l *Ledger) Block(o Owner) {
	l.Release(o)
	l.blocked[o] = struct{}{}
	l.setBlocked()
}

// Blocking returns the owners whose shares cannot be read, sorted.
func (l *Ledger) Blocking() []Owner { return slices.Sorted(maps.Keys(l.blocked)) }

// Release forgets an owner. An unknown owner is not an error.
func (l *Ledger) Release(o Owner) {
	if _, ok := l.blocked[o]; ok {
		delete(l.blocked, o)
		l.setBlocked()
	}
	p, ok := l.held[o]
	if !ok {
		return
	}
	delete(l.held, o)
	for i := range l.views {
		v := &l.views[i]
		if !p.Uses(v.Device.ID) {
			continue
		}
		var kept []Held
		for j := range v.held {
			if v.held[j].Owner != o {
				kept = append(kept, v.held[j])
			}
		}
		v.setShares(kept)
	}
	l.noteSelective()
}

// Fork returns an independent copy for what-if questions. Placements are shared,
// since nobody edits them.
func (l *Ledger) Fork() *Ledger {
	return &Ledger{
		inventory: l.inventory,
		backends:  l.backends,
		held:      maps.Clone(l.held),
		blocked:   maps.Clone(l.blocked),
		views:     slices.Clone(l.views),

		selectsByName: l.selectsByName,
	}
}

// Check reports the first broken invariant: a device given beyond what it has, a
// partition given twice, a share of a device the node does not have, views that
// differ from the placements. Facts recorded from outside can break it.
func (l *Ledger) Check() error {
	fresh := NewLedger(l.inventory, l.backends)
	for _, o := range l.Owners() {
		p := l.held[o]
		for i := range p.Containers {
			for _, s := range p.Containers[i].Shares {
				if _, ok := l.inventory.Device(s.Device); !ok {
					return fmt.Errorf("node %s: owner %s holds a share of unknown device %s", l.inventory.Node, o, s.Device)
				}
			}
		}
		fresh.addPlacement(o, p)
	}
	for i := range l.views {
		if err := l.views[i].checkShares(nil, ""); err != nil {
			return fmt.Errorf("node %s: %w", l.inventory.Node, err)
		}
		if !l.views[i].hasSameShares(&fresh.views[i]) || l.views[i].blocked != (len(l.blocked) > 0) {
			return fmt.Errorf("node %s: view of device %s differs from its placements", l.inventory.Node, l.views[i].Device.ID)
		}
	}
	return nil
}

// hasSameShares reports whether two views of a device show the same shares. The order of
// the owners is that of their arrival and means nothing.
func (v *View) hasSameShares(w *View) bool {
	if v.usage != w.usage || v.tally != w.tally || len(v.held) != len(w.held) {
		return false
	}
	byOwner := func(a, b Held) int { return strings.Compare(string(a.Owner), string(b.Owner)) }
	a, b := slices.Clone(v.held), slices.Clone(w.held)
	slices.SortStableFunc(a, byOwner)
	slices.SortStableFunc(b, byOwner)
	return slices.Equal(a, b)
}

func (l *Ledger) addPlacement(o Owner, p Placement) {
	l.held[o] = p
	for i := range l.views {
		v := &l.views[i]
		if p.Uses(v.Device.ID) {
			v.setShares(appendShares(slices.Clone(v.held), o, &p, v.Device.ID))
		}
	}
	l.noteSelective()
}

func (l *Ledger) noteSelective() {
	l.selectsByName = false
	for i := range l.views {
		l.selectsByName = l.selectsByName || l.views[i].usage.marks.has(heldByName)
	}
}

func (l *Ledger) setBlocked() {
	for i := range l.views {
		l.views[i].blocked = len(l.blocked) > 0
	}
}

func appendShares(held []Held, o Owner, p *Placement, id DeviceID) []Held {
	for i := range p.Containers {
		c := &p.Containers[i]
		for _, s := range c.Shares {
			if s.Device == id {
				held = append(held, Held{Owner: o, Namespace: p.Namespace, Neighbours: p.Neighbours, Container: c.Container, Kind: c.Kind, Share: s})
			}
		}
	}
	return held
}

func samePlacement(a, b Placement) bool {
	if a.Node != b.Node || a.Group != b.Group || a.GeometryHash != b.GeometryHash {
		return false
	}
	return slices.EqualFunc(a.Containers, b.Containers, func(x, y ContainerShares) bool {
		return x.Container == y.Container && x.Kind == y.Kind && slices.Equal(x.Shares, y.Shares)
	})
}
