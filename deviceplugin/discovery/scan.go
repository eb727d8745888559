// SPDX-License-Identifier: Apache-2.0

// Package discovery turns what the driver says and what the administrator set
// into the inventory of this node. Scan reads, Inventory is pure, and Board holds
// the current result for everybody else.
package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// Found is one device as the driver described it.
type Found struct {
	Index int
	driver.Facts
	Links []sharing.Link
}

// Scan reads every device that answers, in PCI order, the order in which CUDA
// numbers them. Devices that do not answer are in the error; the others are
// returned all the same.
func Scan(gpus driver.Driver) ([]Found, error) {
	devices, err := gpus.Devices()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var (
		found   []Found
		handles []driver.Device
		silent  []error
	)
	for _, d := range devices {
		facts, err := d.Facts()
		if err != nil {
			silent = append(silent, err)
			continue
		}
		found = append(found, Found{Index: d.Index(), Facts: facts})
		handles = append(handles, d)
	}
	for i := range found {
		links, err := linksOf(i, found, handles)
		if err != nil {
			silent = append(silent, err)
		}
		found[i].Links = links
	}
	slices.SortFunc(found, func(a, b Found) int { return byPCI(a.PCI, a.Index, b.PCI, b.Index) })
	return found, errors.Join(silent...)
}

// linksOf asks how one device reaches every other. What the driver cannot say is
// left out.
func linksOf(i int, found []Found, handles []driver.Device) ([]sharing.Link, error) {
	var links []sharing.Link
	for j := range found {
		if i == j {
			continue
		}
		kind, err := handles[i].Link(handles[j])
		switch {
		case errors.Is(err, driver.ErrUnsupported):
			continue
		case err != nil:
			return links, fmt.Errorf("link from device %d to %d: %w", found[i].Index, found[j].Index, err)
		}
		links = append(links, sharing.Link{Peer: found[j].UUID, Kind: kind})
	}
	return links, nil
}

// byPCI orders by bus id, then index. Bus ids have a fixed width, so that their
// text order is their bus order.
func byPCI(pciA string, indexA int, pciB string, indexB int) int {
	return cmp.Or(cmp.Compare(pciA, pciB), cmp.Compare(indexA, indexB))
}
