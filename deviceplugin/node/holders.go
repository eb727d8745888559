// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"

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
	// Placement is what all its containers were given: see Held. A mode that is not known
	// is "".
	Placement sharing.Placement
}

// Held is what a pod holds: of containers that were prepared what they got then, whatever its
// annotations say by now, and of the others what the scheduler decided. order is the names of
// its containers as in its spec. edited names a container of which the annotations say something
// else than what it got, if there is one.
func Held(decided sharing.Placement, prepared []sharing.ContainerShares, order []string) (held sharing.Placement, edited string) {
	held = decided
	held.Containers = nil
	for _, name := range order {
		given, isGiven := decided.Container(name)
		at := slices.IndexFunc(prepared, func(p sharing.ContainerShares) bool { return p.Container == name })
		switch {
		case isGiven && (at < 0 || sameShares(given.Shares, prepared[at].Shares)):
			held.Containers = append(held.Containers, *given)
		case at >= 0:
			held.Containers = append(held.Containers, prepared[at])
			edited = name
		}
	}
	for i := range decided.Containers {
		if c := &decided.Containers[i]; !slices.Contains(order, c.Container) {
			held.Containers = append(held.Containers, *c)
		}
	}
	return held, edited
}

// sameShares reports whether a container gets the same by two lists, each of different
// devices. What a partition is called in a configuration is no part of it, nor is the user, whom
// its spec says.
func sameShares(a, b []sharing.Share) bool {
	byDevice := func(s, t sharing.Share) int { return strings.Compare(string(s.Device), string(t.Device)) }
	return slices.EqualFunc(slices.SortedFunc(slices.Values(a), byDevice), slices.SortedFunc(slices.Values(b), byDevice),
		func(s, t sharing.Share) bool {
			samePlace := s.Partition.Same(t.Partition)
			s.Partition, t.Partition = sharing.Partition{}, sharing.Partition{}
			s.User, t.User = sharing.User{}, sharing.User{}
			return samePlace && s == t
		})
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
		for i := range p.Placement.Containers {
			for _, s := range p.Placement.Containers[i].Shares {
				if s.Device == id {
					add(Holder{p.Owner, p.Pod, s.Mode})
				}
			}
		}
	}
	return holders
}
