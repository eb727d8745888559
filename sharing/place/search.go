// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"

	"deviceshare/sharing"
)

const (
	// maxSteps bounds how many choices a search tries. It was set so that a
	// hopeless search on a node of 8 devices, no two of them alike, ends within a
	// millisecond; see BenchmarkSearch.
	maxSteps = 256
	// maxWork bounds how much it asks, in units of sharing.View.Effort. It was set so that the
	// worst that the readers of requests and inventories accept ends within 50 ms.
	maxWork = 250_000
	// maxCandidates bounds among how many shares a container chooses.
	maxCandidates = 64
)

// candidate is one share that a request could get.
type candidate struct {
	score  int64
	device int32 // index among the views
	option int16 // index among the shares this device could give
	rank   int16 // index of the device's backend
	class  int16 // of the amount, for an even split, see attempt.amountClass
	near   int32 // to the rest of pod and job, where it matters, see attempt.nearPoints
}

// listing is which of the shares that a device could give are candidates.
type listing uint8

const (
	preferredShare listing = iota // the one its backend prefers
	bestPerAmount                 // the best one of each amount
	allShares                     // all
)

// usualModes is for how many modes the counts of devices are kept on the stack.
const usualModes = 8

// searchPlacement looks for a placement after the best choice of each container in turn
// led nowhere. It tries the choices of every container, best first, and goes back
// when a later container finds none, for at most maxSteps choices and maxWork in all.
// Devices that are alike are tried once, which makes the steps go far.
//
// The bounds leave every pod of two containers that ask for one device each
// decided exactly on a node of up to 8 devices with up to 8 geometries each. For
// larger pods, and for free partitions on many devices, giving up is possible: a
// pod may be refused although some unlikely combination would hold it.
func (a *attempt) searchPlacement(picks []pick) bool {
	steps := maxSteps
	a.work = maxWork
	return a.searchContainers(0, picks, &steps)
}

// searchContainers places the containers from i on, behind the picks made so far.
func (a *attempt) searchContainers(i int, picks []pick, steps *int) bool {
	if i == len(a.pod.Requests) {
		return true
	}
	var room [maxCandidates]candidate
	return a.searchDevices(i, picks, a.listCandidates(i, picks, room[:0], allShares, nil), a.pod.Requests[i].Count, steps)
}

// searchDevices picks left more devices for container i among the candidates, and then
// places the containers after it.
func (a *attempt) searchDevices(i int, picks []pick, all []candidate, left int, steps *int) bool {
	if left == 0 {
		return a.searchContainers(i+1, picks, steps)
	}
	mine := picks[len(picks)-(a.pod.Requests[i].Count-left):]
	for k := 0; k < len(all) && *steps > 0 && a.work > 0; k++ {
		if !a.mayJoin(mine, all[k]) || a.triedAlike(picks, all[:k], all[k]) {
			continue
		}
		*steps--
		if a.searchDevices(i, a.addPick(i, picks, all[k]), all[k+1:], left-1, steps) {
			return true
		}
	}
	return false
}

// mayJoin reports whether a candidate may be added to what its container has
// already: another device of the same mode, and of the same amount for an even split.
func (a *attempt) mayJoin(mine []pick, c candidate) bool {
	for i := range mine {
		if a.pod.Requests[mine[i].request].Even && a.amountClass(mine[i].share.Cost()) != c.class {
			return false
		}
		if mine[i].device == int(c.device) || mine[i].share.Mode != a.views[c.device].Device.Mode {
			return false
		}
	}
	return true
}

// triedAlike reports whether one of the candidates tried before leads to the same
// end as c.
func (a *attempt) triedAlike(picks []pick, tried []candidate, c candidate) bool {
	for _, t := range tried {
		if t.score != c.score || t.option != c.option || t.device == c.device {
			continue
		}
		a.work -= 1 + len(picks)/4
		v, w := a.viewAfter(int(t.device), picks), a.viewAfter(int(c.device), picks)
		if v.Alike(&w) {
			return true
		}
	}
	return false
}

// addPick adds a candidate for a request to the picks, in room that is there: an
// append could move them to the heap.
func (a *attempt) addPick(i int, picks []pick, c candidate) []pick {
	n := len(picks)
	more := picks[:n+1]
	p := &more[n]
	p.request, p.device = i, int(c.device)
	p.share = a.makeShare(p.device, int(c.option), picks, &a.pod.Requests[i])
	return more
}

// listCandidates lists what request i could get, best first, and of each device the
// shares that are to be listed. At
// most cap(list) are kept, the best ones. If it is given refusals it says there
// how many devices of one mode would do and what is against the others.
func (a *attempt) listCandidates(i int, picks []pick, list []candidate, listed listing, refusals *sharing.Refusals) []candidate {
	req := &a.pod.Requests[i]
	if refusals == nil {
		var unread sharing.Refusals
		refusals = &unread
	}
	*refusals = sharing.Refusals{Container: req.Container, Devices: len(a.views), Wanted: req.Count}
	var room [usualModes]int
	found := slices.Grow(room[:0], len(a.backends))[:len(a.backends)]
	for d := range a.views {
		if listed != preferredShare {
			if a.work -= a.views[d].Effort() + len(picks)/8; a.work <= 0 {
				break
			}
		}
		v, cost, reason := a.fitDevice(d, picks, req)
		if reason != sharing.Fits {
			refusals.Count[reason]++
			continue
		}
		found[a.rank]++
		if cap(list) == 0 {
			continue
		}
		c := candidate{score: a.policy.Device(v, a.costToOthers(v, cost)), device: int32(d), rank: a.rank}
		if req.Even {
			c.class = a.amountClass(cost)
		}
		list = addCandidate(list, c, listed)
		if listed != preferredShare {
			list = a.addOptions(list, c, v, req, listed)
		}
	}
	fits := 0
	for _, n := range found {
		refusals.Found = max(refusals.Found, n)
		fits += n
	}
	refusals.Count[sharing.InAnotherMode] += uint16(fits - refusals.Found)
	return list
}

// addOptions adds the shares a device could give instead of candidate c.
func (a *attempt) addOptions(list []candidate, c candidate, v *sharing.View, req *sharing.Request, listed listing) []candidate {
	chooser, ok := a.backend.(sharing.Chooser)
	for n := 1; ok && n < maxCandidates && a.work > 0; n++ {
		a.work -= v.Effort()
		_, cost, more := chooser.Option(v, req, n)
		if !more {
			break
		}
		c.score, c.option = a.policy.Device(v, a.costToOthers(v, cost)), int16(n)
		if req.Even {
			c.class = a.amountClass(cost)
		}
		list = addCandidate(list, c, listed)
	}
	return list
}

// insertSorted keeps the list sorted: by score, then by the order of modes, devices
// and options, in which candidates arrive but for the modes.
func insertSorted(list []candidate, c candidate) []candidate {
	k := len(list)
	if k < cap(list) {
		list = list[:k+1]
	} else if k--; !isBetter(c, list[k]) {
		return list
	}
	for ; k > 0 && isBetter(c, list[k-1]); k-- {
		list[k] = list[k-1]
	}
	list[k] = c
	return list
}

func isBetter(c, d candidate) bool {
	return c.score > d.score || c.score == d.score && c.rank < d.rank
}
