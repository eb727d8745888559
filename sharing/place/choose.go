// SPDX-License-Identifier: Apache-2.0

package place

import "deviceshare/sharing"

// view is device d as the next request sees it: beside what others hold and what
// the pod's containers placed so far hold while it runs. It is kept in own if it
// differs from the node's view.
func (a *attempt) view(d int, own *sharing.View) *sharing.View {
	v := &a.views[d]
	for i := range a.picks {
		if p := &a.picks[i]; p.device == d {
			*own = v.After(a.pod.Requests[p.request].Kind, &p.share)
			v = own
		}
	}
	return v
}

// admit makes the checks that come before the backend's and finds the backend.
func (a *attempt) admit(v *sharing.View) (sharing.Backend, sharing.Reason) {
	if reason := v.Admit(a.pod); reason != sharing.Fits {
		return nil, reason
	}
	if mode := v.Device.Mode; a.backend == nil || a.served != mode {
		b, ok := a.backends.For(mode)
		if !ok {
			return nil, sharing.NoBackend
		}
		a.backend, a.served = b, mode
	}
	return a.backend, sharing.Fits
}

// allowed reports whether this attempt may use a device's mode.
func (a *attempt) allowed(m sharing.Mode) bool { return a.mode == "" || a.mode == m }

// best returns the device of highest score for a request of one device.
func (a *attempt) best(i int) (pick, sharing.Refusals) {
	req := &a.pod.Requests[i]
	refusals := sharing.Refusals{Container: req.Container, Devices: len(a.views), Wanted: req.Count}
	best := pick{request: i}
	var score int64
	var own sharing.View
	for d := range a.views {
		v := a.view(d, &own)
		backend, reason := a.admit(v)
		if reason != sharing.Fits {
			refusals.Count[reason]++
			continue
		}
		share, reason := backend.Fit(*v, req)
		if reason == sharing.Fits && !a.allowed(v.Device.Mode) {
			reason = sharing.InAnotherMode
		}
		if reason != sharing.Fits {
			refusals.Count[reason]++
			continue
		}
		s := a.policy.Device(*v, share)
		if refusals.Found == 0 || s > score || s == score && rank(share.Mode) < rank(best.share.Mode) {
			best.device, best.share, score = d, share, s
		}
		refusals.Found = 1
	}
	return best, refusals
}

// rank is the position of a mode in the documented order.
func rank(m sharing.Mode) int {
	for i, x := range sharing.Modes() {
		if x == m {
			return i
		}
	}
	return ranks - 1
}

// ranks is how many ranks there are: one per mode and one for modes this version
// does not know.
const ranks = 5

// take picks the devices for one request, or says why there are not enough.
func (a *attempt) take(i int) sharing.Refusals {
	req := &a.pod.Requests[i]
	if req.Count == 1 {
		p, refusals := a.best(i)
		if !refusals.Refused() {
			a.picks = append(a.picks, p)
		}
		return refusals
	}
	refusals := a.count(i)
	if !refusals.Refused() {
		a.takeTogether(i)
	}
	return refusals
}

// count says how many devices of one mode would serve the request.
func (a *attempt) count(i int) sharing.Refusals {
	req := &a.pod.Requests[i]
	refusals := sharing.Refusals{Container: req.Container, Devices: len(a.views), Wanted: req.Count}
	var found [ranks]int
	var own sharing.View
	for d := range a.views {
		v := a.view(d, &own)
		backend, reason := a.admit(v)
		if reason == sharing.Fits {
			_, reason = backend.Fit(*v, req)
		}
		if reason == sharing.Fits && !a.allowed(a.views[d].Device.Mode) {
			reason = sharing.InAnotherMode
		}
		if reason != sharing.Fits {
			refusals.Count[reason]++
			continue
		}
		found[rank(a.views[d].Device.Mode)]++
	}
	fits := 0
	for _, n := range found {
		refusals.Found = max(refusals.Found, n)
		fits += n
	}
	refusals.Count[sharing.InAnotherMode] += uint16(fits - refusals.Found)
	return refusals
}

// takeTogether picks several devices of one mode, of which there are enough: the
// mode whose devices score highest together.
func (a *attempt) takeTogether(i int) {
	wanted := a.pod.Requests[i].Count
	var room [maxCandidates]candidate
	all := a.candidates(i, room[:0], false)
	placed := len(a.picks)
	var best int64
	mode := sharing.Mode("")
	for k := range all {
		m := a.modeOf(all[k])
		if k > 0 && a.firstOf(all, m) < k {
			continue
		}
		n, sum := 0, int64(0)
		for _, c := range all {
			if n < wanted && a.modeOf(c) == m {
				n, sum = n+1, sum+c.score
			}
		}
		if n == wanted && (mode == "" || sum > best || sum == best && rank(m) < rank(mode)) {
			mode, best = m, sum
		}
	}
	for len(a.picks) < placed+wanted {
		next := -1
		for k := range all {
			switch {
			case all[k].taken || a.modeOf(all[k]) != mode:
			case next < 0, all[k].score == all[next].score && a.near(placed, all[k].device) > a.near(placed, all[next].device):
				next = k
			}
		}
		all[next].taken = true
		a.pick(i, all[next])
	}
}

func (a *attempt) modeOf(c candidate) sharing.Mode { return a.views[c.device].Device.Mode }

func (a *attempt) firstOf(all []candidate, m sharing.Mode) int {
	for k := range all {
		if a.modeOf(all[k]) == m {
			return k
		}
	}
	return len(all)
}

// near says how close a device is to those picked from position from on: two for
// each one it is linked to by NVLink, one for each on its NUMA node.
func (a *attempt) near(from, device int) int {
	d, n := a.views[device].Device, 0
	for i := from; i < len(a.picks); i++ {
		peer := a.views[a.picks[i].device].Device
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
