// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// What becomes of a pod that has not begun.
const (
	begins     = "begins"
	stays      = "waits without an end"
	goesLater  = "is placed anew if that lasts"
	goesAtOnce = "is placed anew at once"
)

// fateOf is what the product says.
func fateOf(no *node.Refusal) string {
	switch {
	case no == nil:
		return begins
	case no.IsFinal():
		return goesAtOnce
	case no.IsLimited():
		return goesLater
	}
	return stays
}

// fate is what should become of a pod that was placed on a card in a mode.
func (o *oracle) fate(cards []node.Facts, id sharing.DeviceID, mode sharing.Mode) string {
	card := cards[slices.IndexFunc(cards, func(c node.Facts) bool { return c.UUID == id })]
	scans, unread := 0, 0
	for _, e := range o.history {
		if scan, ok := e.(node.Scanned); ok {
			scans, unread = scans+1, scan.Unread
		}
	}
	c, known := o.condition(card)
	wanted, lost := o.wanted(card, len(o.history))
	switch {
	case scans == 0:
		return goesLater
	case !known && unread > 0:
		return goesLater
	case !known, o.isReplaced(card), wanted == hidden:
		return goesAtOnce
	case c.Kind == node.Absent, c.Kind == node.Broken, c.Kind == node.Unenforced:
		return goesLater
	case lost != "":
		return stays
	case wanted != mode:
		return goesAtOnce
	case c.Kind == node.Ready:
		return begins
	}
	return goesLater
}

// isReplaced reports that another card was seen in the slot since this one was.
func (o *oracle) isReplaced(c node.Facts) bool {
	is := false
	for _, e := range o.history {
		scan, ok := e.(node.Scanned)
		if !ok {
			continue
		}
		if slices.ContainsFunc(scan.Devices, func(f node.Facts) bool { return f.UUID == c.UUID }) {
			is = false
		} else if slices.ContainsFunc(scan.Devices, func(f node.Facts) bool { return f.PCI == c.PCI }) {
			is = true
		}
	}
	return is
}
