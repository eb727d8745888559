// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"deviceshare/sharing"
)

// Holder is a pod that holds a share of a device: one of its containers was
// prepared, and the pod is not gone.
type Holder struct {
	Owner sharing.Owner
	Pod   string // namespace/name, for people
	// Mode is the mode the share is held in; "" when nobody wrote it down, as for
	// pods that another device plugin started.
	Mode sharing.Mode
}

// Record is one container that was prepared and not taken back.
type Record struct {
	Owner   sharing.Owner
	Pod     string // namespace/name
	Mode    sharing.Mode
	Devices []sharing.DeviceID
}

// Running is a live pod of which a container with devices has run, whoever started
// it.
type Running struct {
	Owner sharing.Owner
	Pod   string // namespace/name
	// Unreadable: what it was given cannot be read. It may be on any device.
	Unreadable bool
	// Shares is what all its containers were given. A mode that is not known is "".
	Shares []sharing.Share
}

// HoldersOf returns who holds a share of the device. A pod of which any container
// was prepared holds everything it was given, since its later containers are going
// to start; so does a pod that runs without a record, should the record be lost, or
// should another device plugin have started it.
func HoldersOf(id sharing.DeviceID, records []Record, running []Running) []Holder {
	var holders []Holder
	add := func(h Holder) {
		same := func(x Holder) bool { return x.Owner == h.Owner && x.Mode == h.Mode }
		if !slices.ContainsFunc(holders, same) {
			holders = append(holders, h)
		}
	}
	recorded := map[sharing.Owner]bool{}
	for _, r := range records {
		recorded[r.Owner] = true
		if slices.Contains(r.Devices, id) {
			add(Holder{r.Owner, r.Pod, r.Mode})
		}
	}
	for _, p := range running {
		if p.Unreadable && !recorded[p.Owner] {
			add(Holder{Owner: p.Owner, Pod: p.Pod})
		}
		for i := range p.Shares {
			if p.Shares[i].Device == id {
				add(Holder{p.Owner, p.Pod, p.Shares[i].Mode})
			}
		}
	}
	return holders
}
