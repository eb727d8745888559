// SPDX-License-Identifier: Apache-2.0

package place

import "deviceshare/sharing"

// view is device d as the next request sees it: beside what others hold and what
// the pod's containers placed so far hold while it runs. It is kept in own if it
// differs from the node's view.
func (a *attempt) view(d int, picks []pick, own *sharing.View) *sharing.View {
	v := &a.views[d]
	for i := range picks {
		if p := &picks[i]; p.device == d {
			*own = v.After(a.pod.Requests[p.request].Kind, &p.share)
			v = own
		}
	}
	return v
}

// admit makes the checks that come before the backend's and finds the backend.
// Most devices of a full cluster are refused by amounts, without asking it.
func (a *attempt) admit(v *sharing.View, req *sharing.Request) (sharing.Backend, sharing.Reason) {
	if reason := v.Admit(a.pod); reason != sharing.Fits {
		return nil, reason
	}
	if mode := v.Device.Mode; a.backend == nil || a.served != mode {
		b, ok := a.backends.For(mode)
		if !ok {
			return nil, sharing.NoBackend
		}
		a.backend, a.served, a.rank = b, mode, rank(mode)
	}
	return a.backend, v.Lacks(req)
}

// allowed reports whether this attempt may use a device's mode.
func (a *attempt) allowed(m sharing.Mode) bool { return a.mode == "" || a.mode == m }

// best finds the device of highest score for a request of one device.
func (a *attempt) best(i int, picks []pick, best *pick, refusals *sharing.Refusals) {
	req := &a.pod.Requests[i]
	*refusals = sharing.Refusals{Container: req.Container, Devices: len(a.views), Wanted: req.Count}
	var score int64
	var own sharing.View
	for d := range a.views {
		v := a.view(d, picks, &own)
		backend, reason := a.admit(v, req)
		if reason != sharing.Fits {
			refusals.Count[reason]++
			continue
		}
		cost, reason := backend.Fit(*v, req)
		if reason == sharing.Fits && !a.allowed(v.Device.Mode) {
			reason = sharing.InAnotherMode
		}
		if reason != sharing.Fits {
			refusals.Count[reason]++
			continue
		}
		s := a.policy.Device(*v, cost)
		if refusals.Found == 0 || s > score || s == score && rank(v.Device.Mode) < rank(a.views[best.device].Device.Mode) {
			best.device, score = d, s
		}
		refusals.Found = 1
	}
	if refusals.Found == 1 {
		best.request, best.share = i, a.share(best.device, 0, picks, req)
	}
}

// share is what a request gets of a device that fits it.
func (a *attempt) share(d, option int, picks []pick, req *sharing.Request) sharing.Share {
	var own sharing.View
	v := a.view(d, picks, &own)
	backend, _ := a.backends.For(v.Device.Mode)
	if option == 0 {
		return backend.Share(*v, req)
	}
	s, _ := backend.(sharing.Chooser).Option(*v, req, option)
	return s
}

// rank is the position of a mode in the documented order.
func rank(m sharing.Mode) uint8 {
	for i, x := range sharing.Modes() {
		if x == m {
			return uint8(i)
		}
	}
	return ranks - 1
}

// ranks is how many ranks there are: one per mode and one for modes this version
// does not know.
const ranks = 5

// take adds the devices for one request to the picks, or says why there are not
// enough.
func (a *attempt) take(i int, picks []pick, refusals *sharing.Refusals) []pick {
	if a.pod.Requests[i].Count == 1 {
		var p pick
		if a.best(i, picks, &p, refusals); !refusals.Refused() {
			picks = add(picks, p)
		}
		return picks
	}
	var room [maxCandidates]candidate
	list := room[:0]
	if len(a.views) > len(room) {
		list = make([]candidate, 0, len(a.views))
	}
	all := a.candidates(i, picks, list, false, refusals)
	if !refusals.Refused() {
		picks = a.takeTogether(i, picks, all)
	}
	return picks
}

// count says how many devices of one mode would serve the request on its own.
func (a *attempt) count(i int, refusals *sharing.Refusals) {
	a.candidates(i, nil, nil, false, refusals)
}

// takeTogether picks several devices of one mode, of which there are enough.
func (a *attempt) takeTogether(i int, picks []pick, all []candidate) []pick {
	wanted := a.pod.Requests[i].Count
	mode := bestMode(all, wanted)
	placed := len(picks)
	for len(picks) < placed+wanted {
		next, nearest := -1, 0
		for k := range all {
			if all[k].taken || all[k].rank != mode {
				continue
			}
			if next >= 0 && all[k].score != all[next].score {
				break
			}
			if n := a.near(picks[placed:], int(all[k].device)); next < 0 || n > nearest {
				next, nearest = k, n
			}
		}
		all[next].taken = true
		picks = a.pick(i, picks, all[next])
	}
	return picks
}

// bestMode is the rank of the mode whose wanted best devices score highest
// together, among those that have as many.
func bestMode(all []candidate, wanted int) uint8 {
	var found [ranks]int
	var sum [ranks]int64
	for _, c := range all {
		if found[c.rank] < wanted {
			found[c.rank]++
			sum[c.rank] += c.score
		}
	}
	best := -1
	for r := range found {
		if found[r] == wanted && (best < 0 || sum[r] > sum[best]) {
			best = r
		}
	}
	return uint8(best)
}

// near says how close a device is to those picked: two for each one it is linked
// to by NVLink, one for each on its NUMA node.
func (a *attempt) near(picks []pick, device int) int {
	d, n := a.views[device].Device, 0
	for i := range picks {
		peer := a.views[picks[i].device].Device
		if d.NUMA >= 0 && d.NUMA == peer.NUMA {
			n++
		}
		for _, l := range d.Links {
			if l.Peer == peer.ID && l.Kind == "nvlink" {
				n += 2
			}
		}
	}
	return n
}
