// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"

	"deviceshare/sharing"
)

// merit is how good a set of devices is for one container. One set is preferred to another by the
// first of these in which they differ:
//
//  1. the weakest path between any two of them, since a collective operation is as fast as it;
//  2. the points of the paths between all of them, see pathPoints;
//  3. how few pairs are on different NUMA nodes;
//  4. the policy's scores of the devices, added up;
//  5. near: how many of them are at home, see attempt.findHome, and then the points of the paths to
//     the devices that the other containers of the pod, and the other pods of its job, have;
//  6. how few points are cut, those of the paths to the devices that are left over;
//  7. the order of the devices.
//
// Partitions do not reach each other over NVLink or PCIe: of them 1 to 3 say nothing, and the NUMA
// node counts in nearPoints. For one device only 4, 5 and 7 differ.
//
// Every part but the first is a sum over pairs or devices, and the first can only fall when a set
// grows. So sets are built device by device.
type merit struct {
	weakest       sharing.Path
	links, cross  int32
	score         int64
	near, reaches int32
}

// cutPoints is the points of the paths from a set to the devices that are left over: those of its
// devices to all others, without those within the set, which count at both ends.
func (w *merit) cutPoints() int32 { return w.reaches - 2*w.links }

// compareTo is positive if w is preferred, negative if v is.
func (w *merit) compareTo(v *merit) int64 {
	switch {
	case w.weakest != v.weakest:
		return int64(w.weakest) - int64(v.weakest)
	case w.links != v.links:
		return int64(w.links - v.links)
	case w.cross != v.cross:
		return int64(v.cross - w.cross)
	case w.score != v.score:
		return w.score - v.score
	case w.near != v.near:
		return int64(w.near - v.near)
	}
	return int64(v.cutPoints() - w.cutPoints())
}

// pathPoints is how much a path counts. One NVLink counts more than any way over PCIe, and each
// further one half as much as the best of those.
func pathPoints(path sharing.Path, links int) int32 {
	if path == sharing.PathNVLink {
		return 40 + 20*int32(links)
	}
	return [...]int32{
		sharing.PathUnknown: 0, sharing.PathSYS: 0, sharing.PathNODE: 10,
		sharing.PathPHB: 20, sharing.PathPXB: 30, sharing.PathPIX: 40,
	}[path]
}

// pair is what counts of two devices.
type pair struct {
	path   sharing.Path
	cross  uint8 // 1 if they are on different NUMA nodes
	points int16
	near   int16 // the points of partitions, which count behind the policy
}

// pairOf weighs two devices of the node. A path that nobody knows counts as the slowest. Of
// partitions only the NUMA nodes count.
func (a *attempt) pairOf(d, e int) pair {
	v, w := &a.views[d], &a.views[e]
	x, y := v.Device, w.Device
	apart := x.NUMA >= 0 && y.NUMA >= 0 && x.NUMA != y.NUMA
	if v.Partitioned() || w.Partitioned() {
		if x.NUMA >= 0 && x.NUMA == y.NUMA {
			return pair{path: sharing.PathNVLink, near: int16(pathPoints(sharing.PathNODE, 0))}
		}
		return pair{path: sharing.PathNVLink}
	}
	path, links := x.PathTo(y)
	p := pair{path: max(path, sharing.PathSYS), points: int16(pathPoints(path, links))}
	if apart {
		p.cross = 1
	}
	return p
}

// nearPoints is how close a device is to those that other containers of the pod, and other pods of
// its job, have. A device that they have themselves is the policy's business: it adds nothing.
func (a *attempt) nearPoints(d int, picks []pick) int32 {
	var sum int32
	if d < 64 && a.home&(1<<d) != 0 {
		sum = homePoints
	}
	for i := range a.views {
		if i != d && (a.runsOn(i, picks) || a.hasMate(i)) {
			p := a.pairOf(d, i)
			sum += int32(p.points + p.near)
		}
	}
	return sum
}

// runsOn reports whether one of the pod's containers placed so far has device d for as long as the
// pod runs.
func (a *attempt) runsOn(d int, picks []pick) bool {
	for i := range picks {
		if picks[i].device == d && a.pod.Requests[picks[i].request].Kind != sharing.Init {
			return true
		}
	}
	return false
}

// hasMate reports whether another pod of the job has device d for as long as it runs.
func (a *attempt) hasMate(d int) bool {
	if len(a.pod.Mates) == 0 {
		return false
	}
	if a.mates == nil {
		a.mates = make([]bool, len(a.views))
		for i := range a.views {
			a.mates[i] = slices.ContainsFunc(a.views[i].Held(), func(h sharing.Held) bool {
				return h.Kind != sharing.Init && slices.Contains(a.pod.Mates, h.Owner)
			})
		}
	}
	return a.mates[d]
}

// isAnchored reports whether a device can be near to anything.
func (a *attempt) isAnchored(picks []pick) bool {
	return a.home != 0 || len(picks)+len(a.pod.Mates) > 0
}

// homePoints are more than the paths to all devices of a node together.
const homePoints = 1 << 20

// findHome looks for a home for a pod of several containers: the best set of as many devices as
// they ask for together, each of which would serve any of them, whatever the policy says. The
// containers are placed one after another, and without it the first would not know how much room
// the others need beside it.
func (a *attempt) findHome() {
	a.home = 0
	wanted, containers := 0, 0
	for i := range a.pod.Requests {
		if r := &a.pod.Requests[i]; r.Kind != sharing.Init {
			wanted += r.Count
			containers++
		}
	}
	if containers < 2 || wanted > len(a.views) || len(a.views) > maxCandidates || a.lacksTopology() {
		return
	}
	var room [maxCandidates]candidate
	team := room[:0]
	for d := range a.views {
		if a.servesAll(d) {
			team = append(team, candidate{device: int32(d), rank: a.rank})
		}
	}
	together := bestGroup(team, wanted)
	team = slices.DeleteFunc(team, func(c candidate) bool { return c.groupKey() != together })
	if len(team) < wanted {
		return
	}
	var set [maxCandidates]int16
	for _, k := range a.bestSet(team, wanted, nil, set[:0]) {
		a.home |= 1 << team[k].device
	}
}

// lacksTopology reports whether the node says nothing about the paths between its devices.
func (a *attempt) lacksTopology() bool {
	for i := range a.views {
		if d := a.views[i].Device; len(d.Links) > 0 || d.NUMA != a.views[0].Device.NUMA {
			return false
		}
	}
	return true
}

// servesAll reports whether a device would serve any container of the pod that stays.
func (a *attempt) servesAll(d int) bool {
	for i := range a.pod.Requests {
		if r := &a.pod.Requests[i]; r.Kind != sharing.Init {
			if _, _, reason := a.fitDevice(d, nil, r); reason != sharing.Fits {
				return false
			}
		}
	}
	return true
}
