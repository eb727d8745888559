// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"slices"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// Scan reads every device that answers, in PCI order, the order in which CUDA
// numbers them. Devices that do not answer are in the error; the others are
// returned all the same.
func Scan(from Driver) ([]node.Facts, error) {
	devices, err := from.Devices()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var (
		found   []node.Facts
		handles []Device
		silent  []error
	)
	for _, d := range devices {
		facts, err := d.Facts()
		if err != nil {
			silent = append(silent, err)
			continue
		}
		facts.Index = d.Index()
		found = append(found, facts)
		handles = append(handles, d)
	}
	for i := range found {
		links, err := linksOf(i, found, handles)
		if err != nil {
			silent = append(silent, err)
		}
		found[i].Links = links
	}
	slices.SortFunc(found, func(a, b node.Facts) int { return node.ComparePCI(a.PCI, a.Index, b.PCI, b.Index) })
	return found, errors.Join(silent...)
}

// linksOf asks how one device reaches every other. What the driver cannot say is
// left out.
func linksOf(i int, found []node.Facts, handles []Device) ([]sharing.Link, error) {
	var links []sharing.Link
	for j := range found {
		if i == j {
			continue
		}
		link, err := handles[i].Link(handles[j])
		switch {
		case errors.Is(err, ErrUnsupported):
			continue
		case err != nil:
			return links, fmt.Errorf("link from device %d to %d: %w", found[i].Index, found[j].Index, err)
		}
		link.Peer = found[j].UUID
		links = append(links, link)
	}
	return links, nil
}
