// SPDX-License-Identifier: Apache-2.0

package place

import (
	"deviceshare/sharing"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/worth"
)

// Points says how well a node suits a pod by what later pods lose there, see policy.Points.
// The pod needs these amounts beside devices; nil is a pod without devices. It is false if the
// policy weighs nothing of the kind, or the devices do not fit.
//
// It scores the devices that Place would choose. Like Place it changes nothing; for pods that
// ask for one share it allocates nothing.
func Points(h worth.Host, pod *sharing.PodRequest, needs worth.Amounts, backends sharing.Backends, p policy.Policy) (float64, bool) {
	valuer, ok := p.(policy.Valuer)
	if !ok {
		return 0, false
	}
	if pod == nil {
		return policy.Points(valuer.Model(), h, nil, needs), true
	}
	a := attempt{views: h.Views, pod: pod, backends: backends, policy: p}
	if len(pod.Modes) == 0 {
		return a.nodePoints(valuer, h, needs)
	}
	for _, m := range pod.Modes {
		a.mode = m
		if points, ok := a.nodePoints(valuer, h, needs); ok {
			return points, true
		}
	}
	return 0, false
}

// nodePoints scores the node in one mode, or in any.
func (a *attempt) nodePoints(valuer policy.Valuer, h worth.Host, needs worth.Amounts) (float64, bool) {
	var room [8]worth.Taken
	taken, ok := a.appendTaken(room[:0])
	if !ok {
		return 0, false
	}
	return policy.Points(valuer.Model(), h, taken, needs), true
}

// appendTaken adds what the pod would take of each device; false if it does not fit.
func (a *attempt) appendTaken(list []worth.Taken) ([]worth.Taken, bool) {
	var refusals sharing.Refusals
	if r := a.pod.Requests; len(r) == 1 && r[0].Count == 1 {
		best := a.findBestDevice(0, nil, &refusals)
		if refusals.Refused() {
			return nil, false
		}
		_, cost, _ := a.fitDevice(int(best.device), nil, &r[0])
		return append(list, worth.Taken{Device: int(best.device), Cost: cost, Shares: 1}), true
	}
	var placement sharing.Placement
	if a.placePod(&placement, &refusals); refusals.Refused() {
		return nil, false
	}
	for i := range placement.Containers {
		c := &placement.Containers[i]
		for j := range c.Shares {
			list = a.addShare(list, c.Kind, &c.Shares[j])
		}
	}
	return list, true
}

// addShare adds a share to what is taken. What init containers take is there beside nothing else.
func (a *attempt) addShare(list []worth.Taken, kind sharing.ContainerKind, s *sharing.Share) []worth.Taken {
	d := 0
	for a.views[d].Device.ID != s.Device {
		d++
	}
	cost := s.Cost()
	cost.Loss = a.forecastLoss(d, s)
	for i := range list {
		t := &list[i]
		if t.Device != d {
			continue
		}
		if kind == sharing.Init {
			t.Cost.Memory, t.Cost.Cores = max(t.Cost.Memory, cost.Memory), max(t.Cost.Cores, cost.Cores)
		} else {
			t.Cost.Memory, t.Cost.Cores = t.Cost.Memory.Plus(cost.Memory), t.Cost.Cores+cost.Cores
			t.Shares++
		}
		t.Cost.Loss += cost.Loss
		return list
	}
	return append(list, worth.Taken{Device: d, Cost: cost, Shares: 1})
}

// forecastLoss is what later requests lose by a partition, as far as it is known once it is
// chosen: its part of what the device is worth.
func (a *attempt) forecastLoss(d int, s *sharing.Share) int64 {
	v := &a.views[d]
	if whole := v.Worth(); whole > 0 && v.Device.Memory > 0 {
		return int64(float64(whole) * min(1, float64(s.Memory)/float64(v.Device.Memory)))
	}
	return 0
}
