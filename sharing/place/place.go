// SPDX-License-Identifier: Apache-2.0

// Package place makes the decision: which shares of which devices of one node a pod gets, or
// the reasons why it gets none.
package place

import (
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/policy"
)

// Place finds shares for every container of one pod on the devices of one node.
//
// A container gets different devices of one mode, and the same of each if it asks for an
// even split. When the pod names modes, all its containers are placed in the first mode in
// which they all fit; otherwise every mode competes and each container takes the devices the
// policy scores highest. Equal scores are decided by the order of the backends, then by how
// near devices are to those of the pod's other containers and of the other pods of its job,
// and then by the order of the devices. Of several devices for one container the paths
// between them count more than the policy, see merit.
//
// Containers are placed in the order of the pod, each seeing what earlier ones
// hold while it runs. When a later one finds no room because of an earlier one's
// choice, other choices are searched, see searchPlacement.
//
// Place changes none of its arguments and gives the same answer for the same
// arguments. The placement is meaningful only when the refusals refuse nothing;
// its Node and GeometryHash are for the caller to fill in, since views do not
// know them.
//
// Refusing a pod that asks for up to eight shares on a node of up to 64 devices
// allocates nothing, with two exceptions. A container of an even split allocates the list of
// what each device could give. And when a backend has to be asked about a
// device on which an earlier container of the pod has a share, one view is
// allocated for all such questions. Modes that divide a device by amounts refuse
// without being asked, see sharing.View.Lacks, so this happens when a later
// container would fit the device by amounts, or the device is in mode mig.
//
// The refusals are about the first container that fits nowhere even alone, else
// about the first that did not fit beside the ones before it. When several modes
// were tried, they are those of the mode that got furthest; and so with
// NUMA nodes for a pod that wants the devices of one.
func Place(views []sharing.View, pod *sharing.PodRequest, backends sharing.Backends, p policy.Policy) (placement sharing.Placement, refusals sharing.Refusals) {
	a := attempt{views: views, pod: pod, backends: backends, policy: p, alone: pod.Neighbours.IsAlone()}
	if len(pod.Modes) == 0 {
		a.placeWithNUMA(&placement, &refusals)
		return placement, refusals
	}
	furthest := -1
	for _, m := range pod.Modes {
		var r sharing.Refusals
		a.mode = m
		at := a.placeWithNUMA(&placement, &r)
		if !r.Refused() {
			return placement, r
		}
		if at > furthest {
			furthest, refusals = at, r
		}
	}
	return placement, refusals
}

// attempt is one try to place a pod, in one mode or in any.
type attempt struct {
	views    []sharing.View
	pod      *sharing.PodRequest
	backends sharing.Backends
	policy   policy.Policy
	mode     sharing.Mode // "" for any
	alone    bool         // the pod accepts nobody beside it
	pinned   bool         // to devices of one NUMA node
	numa     int          // which one; -1 for none

	// backend is the one looked up last, for mode served; rank is its position among the
	// backends. Most devices of a node are in the same mode and need no other one.
	backend sharing.Backend
	served  sharing.Mode
	rank    int16

	// classes are the amounts that devices give to containers that ask for an even split.
	classes []sharing.Cost

	// mates says for each device whether another pod of the job has it; nil if nobody asked.
	mates []bool

	// home is the devices on which the pod's containers would be nearest to each other, a bit for
	// each; 0 if there is none.
	home uint64

	// work is how much a search may still ask, see maxWork.
	work int

	// scratch is room for a device with shares of the pod on it, see viewForBackend.
	scratch *sharing.View
}

// placeWithNUMA is placePod, on each NUMA node in turn if the pod asks for one.
func (a *attempt) placeWithNUMA(placement *sharing.Placement, refusals *sharing.Refusals) int {
	if !a.pod.OneNUMA {
		return a.placePod(placement, refusals)
	}
	a.pinned, a.numa = true, -1
	furthest := a.placePod(placement, refusals) // why no device would do, wherever it is
	if !refusals.Refused() {
		return furthest
	}
	for _, numa := range a.numaNodes() {
		var r sharing.Refusals
		a.pinned, a.numa = true, numa
		at := a.placePod(placement, &r)
		if !r.Refused() {
			*refusals = r
			return at
		}
		if at > furthest || at == furthest && r.Found > refusals.Found {
			furthest, *refusals = at, r
		}
	}
	return furthest
}

// numaNodes lists the NUMA nodes of the devices, those first on which the policy prefers a device
// for the first container. It leaves the attempt without a NUMA node.
func (a *attempt) numaNodes() []int {
	var nodes []int
	add := func(d int) {
		if n := a.views[d].Device.NUMA; n >= 0 && !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	a.pinned = false
	for _, c := range a.listCandidates(0, nil, make([]candidate, 0, len(a.views)), preferredShare, nil) {
		add(int(c.device))
	}
	for d := range a.views {
		add(d)
	}
	return nodes
}

// pick is one share for one request, by their indexes.
type pick struct {
	request, device int
	share           sharing.Share
}

// placePod writes the placement, or the refusals and returns the container they are
// about. Results are written in place: copying them costs more than deciding.
func (a *attempt) placePod(placement *sharing.Placement, refusals *sharing.Refusals) int {
	requests := a.pod.Requests
	if len(requests) == 1 && requests[0].Count == 1 {
		if best := a.findBestDevice(0, nil, refusals); !refusals.Refused() {
			a.writeSingleShare(best, placement, refusals)
		}
		return 0
	}
	return a.placeManyShares(placement, refusals)
}

// placeManyShares is run for pods that need more than one share. What the containers
// placed so far got is handed from function to function, so that it stays off the
// heap until the pod is placed.
func (a *attempt) placeManyShares(placement *sharing.Placement, refusals *sharing.Refusals) int {
	total := 0
	for i := range a.pod.Requests {
		if a.pod.Requests[i].Count > len(a.views) {
			return a.firstUnplaceable(0, refusals)
		}
		total += a.pod.Requests[i].Count
	}
	a.findHome()
	var room [8]pick
	picks := slices.Grow(room[:0], total)
	for i := range a.pod.Requests {
		if picks = a.pickDevices(i, picks, refusals); !refusals.Refused() {
			continue
		}
		if i == 0 {
			return 0
		}
		if j := a.firstUnplaceable(i, refusals); j >= 0 {
			return j
		}
		if !a.searchPlacement(picks[:0]) {
			return i
		}
		picks = picks[:total]
		break
	}
	a.writePlacement(picks, placement, refusals)
	return 0
}

// firstUnplaceable returns the first container from i on that fits nowhere even without the
// others, and why; -1 and no change if there is none.
func (a *attempt) firstUnplaceable(i int, refusals *sharing.Refusals) int {
	for ; i < len(a.pod.Requests); i++ {
		var r sharing.Refusals
		if a.countFits(i, &r); r.Refused() {
			*refusals = r
			return i
		}
	}
	return -1
}

// writeSingleShare is finish for one share, which most pods ask for: one allocation holds
// it all.
func (a *attempt) writeSingleShare(c candidate, placement *sharing.Placement, refusals *sharing.Refusals) {
	room := new(struct {
		container [1]sharing.ContainerShares
		share     [1]sharing.Share
	})
	r := &a.pod.Requests[0]
	room.share[0] = a.makeShare(int(c.device), int(c.option), nil, r)
	room.container[0] = sharing.ContainerShares{Container: r.Container, Kind: r.Kind, Shares: room.share[:]}
	*placement = sharing.Placement{Containers: room.container[:], Group: a.pod.Neighbours.SpreadGroup(a.pod.Namespace), Namespace: a.pod.Namespace, Neighbours: a.pod.Neighbours}
	*refusals = sharing.Refusals{}
}

// writePlacement writes the picks, which are in the order of the requests, as a value.
func (a *attempt) writePlacement(picks []pick, placement *sharing.Placement, refusals *sharing.Refusals) {
	for i := range picks {
		// A container's shares are in the order of the devices, which is how
		// they are numbered inside it, and not in the order of preference.
		for k := i; k > 0 && picks[k-1].request == picks[k].request && picks[k-1].device > picks[k].device; k-- {
			picks[k-1], picks[k] = picks[k], picks[k-1]
		}
	}
	shares := make([]sharing.Share, len(picks))
	for i := range picks {
		shares[i] = picks[i].share
	}
	containers := make([]sharing.ContainerShares, len(a.pod.Requests))
	for i := range containers {
		r := &a.pod.Requests[i]
		containers[i] = sharing.ContainerShares{Container: r.Container, Kind: r.Kind, Shares: shares[:r.Count:r.Count]}
		shares = shares[r.Count:]
	}
	*placement = sharing.Placement{Containers: containers, Group: a.pod.Neighbours.SpreadGroup(a.pod.Namespace), Namespace: a.pod.Namespace, Neighbours: a.pod.Neighbours}
	*refusals = sharing.Refusals{}
}
