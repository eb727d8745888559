// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"

	"deviceshare/sharing"
)

func hasPickOn(picks []pick, d int) bool {
	for i := range picks {
		if picks[i].device == d {
			return true
		}
	}
	return false
}

// viewAfter is device d as the next request sees it: beside what others hold and what
// the pod's containers placed so far hold while it runs.
func (a *attempt) viewAfter(d int, picks []pick) sharing.View {
	v := a.views[d]
	for i := range picks {
		if p := &picks[i]; p.device == d {
			v = v.After(a.pod.Requests[p.request].Kind, &p.share)
		}
	}
	return v
}

// viewForBackend is view for a backend or a policy: the node's own view as long as the pod
// has nothing on the device, else the scratch view, which is good until the next
// one is shown.
func (a *attempt) viewForBackend(d int, picks []pick) *sharing.View {
	if !hasPickOn(picks, d) {
		return &a.views[d]
	}
	return a.storeScratch(a.viewAfter(d, picks))
}

// storeScratch moves a view to the scratch view. A variable whose address goes through an
// interface is on the heap even if nobody keeps the address, so there is one for
// a whole attempt, made when it is first needed.
func (a *attempt) storeScratch(v sharing.View) *sharing.View {
	if a.scratch == nil {
		a.scratch = new(sharing.View)
	}
	*a.scratch = v
	return a.scratch
}

// fitDevice says what a request would take of device d, or why it gets nothing there.
// If it fits, v is the view that was shown to the backend. Most devices of a full
// cluster are refused by Admit and by amounts.
func (a *attempt) fitDevice(d int, picks []pick, req *sharing.Request) (v *sharing.View, cost sharing.Cost, reason sharing.Reason) {
	if v = &a.views[d]; hasPickOn(picks, d) {
		// The checks that need no backend come before the view is kept, so that
		// most refusals allocate nothing.
		own := a.viewAfter(d, picks)
		if reason = own.Admit(a.pod); reason == sharing.Fits {
			reason = own.Lacks(req)
		}
		if reason != sharing.Fits {
			return nil, cost, reason
		}
		v = a.storeScratch(own)
	} else if reason = v.Admit(a.pod); reason != sharing.Fits {
		return nil, cost, reason
	}
	mode := v.Device.Mode
	if (a.backend == nil || a.served != mode) && !a.selectBackend(mode) {
		return nil, cost, sharing.NoBackend
	}
	if cost, reason = a.backend.Fit(v, req); reason == sharing.Fits {
		reason = a.checkModeAndNUMA(v.Device)
	}
	return v, cost, reason
}

func (a *attempt) selectBackend(m sharing.Mode) bool {
	i := a.backends.Index(m)
	if i >= 0 {
		a.backend, a.served, a.rank = a.backends[i], m, int16(i)
	}
	return i >= 0
}

// checkModeAndNUMA is what is against a device in this attempt: its mode or its NUMA node.
func (a *attempt) checkModeAndNUMA(d *sharing.Device) sharing.Reason {
	switch {
	case a.mode != "" && a.mode != d.Mode:
		return sharing.InAnotherMode
	case a.pinned && (a.numa < 0 || a.numa != d.NUMA):
		return sharing.OtherNUMANode
	}
	return sharing.Fits
}

// findBestDevice finds the device of highest score for a request of one device. The
// candidate means something only if the refusals refuse nothing.
func (a *attempt) findBestDevice(i int, picks []pick, refusals *sharing.Refusals) (best candidate) {
	req := &a.pod.Requests[i]
	*refusals = sharing.Refusals{Container: req.Container, Devices: len(a.views), Wanted: req.Count}
	for d := range a.views {
		v, cost, reason := a.fitDevice(d, picks, req)
		if reason != sharing.Fits {
			refusals.Count[reason]++
			continue
		}
		c := candidate{score: a.policy.Device(v, a.costToOthers(v, cost)), device: int32(d), rank: a.rank}
		if refusals.Found == 0 || isBetter(c, best) {
			best, refusals.Found = c, 1
		}
	}
	if refusals.Found > 0 && a.isAnchored(picks) && !a.lacksTopology() {
		return a.preferNearest(best, picks, req)
	}
	return best
}

// preferNearest is the candidate that is nearest to the rest of the pod and of its job, of those
// that are as good as the best, which is the first of them.
func (a *attempt) preferNearest(best candidate, picks []pick, req *sharing.Request) candidate {
	first := best
	best.near = a.nearPoints(int(best.device), picks)
	for d := int(best.device) + 1; d < len(a.views); d++ {
		near := a.nearPoints(d, picks)
		if near <= best.near {
			continue
		}
		v, cost, reason := a.fitDevice(d, picks, req)
		if reason == sharing.Fits && a.rank == first.rank && a.policy.Device(v, a.costToOthers(v, cost)) == first.score {
			best.device, best.near = int32(d), near
		}
	}
	return best
}

func (a *attempt) makeShare(d, option int, picks []pick, req *sharing.Request) sharing.Share {
	v := a.viewForBackend(d, picks)
	backend, _ := a.backends.For(v.Device.Mode)
	if option == 0 {
		return backend.Share(v, req)
	}
	s, _, _ := backend.(sharing.Chooser).Option(v, req, option)
	return s
}

// pickDevices adds the devices for one request to the picks, or says why there are not
// enough.
func (a *attempt) pickDevices(i int, picks []pick, refusals *sharing.Refusals) []pick {
	if a.pod.Requests[i].Count == 1 {
		if best := a.findBestDevice(i, picks, refusals); !refusals.Refused() {
			picks = a.addPick(i, picks, best)
		}
		return picks
	}
	if a.pod.Requests[i].Even {
		all := a.listEvenCandidates(i, picks, refusals)
		if !refusals.Refused() {
			picks = a.takeTogether(i, picks, all)
		}
		return picks
	}
	var room [maxCandidates]candidate
	all := a.listCandidates(i, picks, slices.Grow(room[:0], len(a.views)), preferredShare, refusals)
	if !refusals.Refused() {
		picks = a.takeTogether(i, picks, all)
	}
	return picks
}

// countFits says how many devices of one mode would serve the request on its own.
func (a *attempt) countFits(i int, refusals *sharing.Refusals) {
	if a.pod.Requests[i].Even {
		a.listEvenCandidates(i, nil, refusals)
		return
	}
	a.listCandidates(i, nil, nil, preferredShare, refusals)
}
