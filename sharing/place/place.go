// SPDX-License-Identifier: Apache-2.0

// Package place makes the decision: which shares of which devices of one node a
// pod gets, or why none.
package place

import (
	"deviceshare/sharing"
	"deviceshare/sharing/policy"
)

// Place finds shares for every container of one pod on the devices of one node.
//
// A container gets different devices of one mode. When the pod names modes, all
// its containers are placed in the first mode in which they all fit; otherwise
// every mode competes and each container takes the devices the policy scores
// highest. Equal scores are decided by the order of sharing.Modes and then by
// the order of the devices; for a container of several devices, those that are
// linked to the ones it already has, or on their NUMA node, come first.
//
// Containers are placed in the order of the pod, each seeing what earlier ones
// hold while it runs. When a later one finds no room because of an earlier one's
// choice, other choices are searched, see search.
//
// Place changes none of its arguments and gives the same answer for the same
// arguments. It allocates nothing when it refuses a pod that asks for up to
// eight shares. The placement is meaningful only when the refusals refuse
// nothing; its Node and GeometryHash are for the caller to fill in, since views
// do not know them.
//
// The refusals are about the first container that fits nowhere even alone, else
// about the first that did not fit beside the ones before it. When several modes
// were tried, they are those of the mode that got furthest.
func Place(views []sharing.View, pod *sharing.PodRequest, backends sharing.Backends, p policy.Policy) (sharing.Placement, sharing.Refusals) {
	a := attempt{views: views, pod: pod, backends: backends, policy: p}
	if len(pod.Modes) == 0 {
		placement, refusals, _ := a.run()
		return placement, refusals
	}
	var worst sharing.Refusals
	furthest := -1
	for _, m := range pod.Modes {
		a.mode = m
		placement, refusals, at := a.run()
		if !refusals.Refused() {
			return placement, refusals
		}
		if at > furthest {
			furthest, worst = at, refusals
		}
	}
	return sharing.Placement{}, worst
}

// Possible reports whether the pod would fit if nobody else held anything of
// these devices. If not, removing other pods from the node cannot help.
func Possible(views []sharing.View, pod *sharing.PodRequest, backends sharing.Backends, p policy.Policy) bool {
	bare := make([]sharing.View, len(views))
	for i := range views {
		bare[i] = sharing.NewView(views[i].Device, nil)
	}
	_, refusals := Place(bare, pod, backends, p)
	return !refusals.Refused()
}

// attempt is one try to place a pod, in one mode or in any.
type attempt struct {
	views    []sharing.View
	pod      *sharing.PodRequest
	backends sharing.Backends
	policy   policy.Policy
	mode     sharing.Mode // "" for any

	// backend serves served. Most devices of a node are in the same mode, so
	// looking up the last one again is the common case.
	backend sharing.Backend
	served  sharing.Mode

	// picks is what the containers placed so far got.
	picks []pick
}

// pick is one share for one request, by their indexes.
type pick struct {
	request, device int
	share           sharing.Share
}

// run returns the placement, or the refusals and the container they are about.
func (a *attempt) run() (sharing.Placement, sharing.Refusals, int) {
	requests := a.pod.Requests
	if len(requests) == 1 && requests[0].Count == 1 {
		best, refusals := a.best(0)
		if refusals.Refused() {
			return sharing.Placement{}, refusals, 0
		}
		return a.placement([]pick{best}), sharing.Refusals{}, 0
	}
	return a.several()
}

// several is run for pods that need more than one share. The receiver is a value
// so that the room for the picks stays off the heap.
func (a attempt) several() (sharing.Placement, sharing.Refusals, int) {
	var room [8]pick
	a.picks = room[:0]
	for i := range a.pod.Requests {
		refusals := a.take(i)
		if !refusals.Refused() {
			continue
		}
		if i == 0 {
			return sharing.Placement{}, refusals, 0
		}
		a.picks = room[:0]
		for j := i; j < len(a.pod.Requests); j++ {
			if alone := a.count(j); alone.Refused() {
				return sharing.Placement{}, alone, j
			}
		}
		if !a.search() {
			return sharing.Placement{}, refusals, i
		}
		break
	}
	return a.placement(a.picks), sharing.Refusals{}, 0
}

// placement is the picks as a value. They are in the order of the requests.
func (a *attempt) placement(picks []pick) sharing.Placement {
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
	return sharing.Placement{Containers: containers, Group: a.pod.Group}
}
