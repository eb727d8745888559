// SPDX-License-Identifier: Apache-2.0

package place

import (
	"deviceshare/sharing"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/worth"
)

// Unfit is below the score of every node where the devices fit, for a policy that learns.
const Unfit = -2 * policy.MaxPoints

// Score says how well a node suits a pod, by the policy's score of what Place would give it there,
// and whether the devices fit. Higher is preferred. The pod needs these amounts beside devices; nil
// is a pod without devices. Where devices do not fit, a policy that does not learn scores the node
// as it is.
//
// Like Place it changes nothing; for pods that ask for one share it allocates nothing.
func Score(h worth.Host, pod *sharing.PodRequest, needs worth.Amounts, backends sharing.Backends, p policy.Policy) (score float64, fits bool) {
	if pod == nil {
		return p.Node(h, nil, nil, needs), true
	}
	var room [8]worth.Taken
	a := attempt{views: h.Views, pod: pod, backends: backends, policy: p, alone: pod.Neighbours.IsAlone()}
	taken, fits := a.takenInFirstMode(room[:0])
	if !fits && p.Learns() {
		return Unfit, false
	}
	return p.Node(h, pod, taken, needs), fits
}

// takenInFirstMode adds what the pod would take of each device, in the first mode in which it fits;
// false if it fits in none.
func (a *attempt) takenInFirstMode(list []worth.Taken) (taken []worth.Taken, fits bool) {
	if len(a.pod.Modes) == 0 {
		return a.appendTaken(list)
	}
	for _, m := range a.pod.Modes {
		a.mode = m
		if taken, fits = a.appendTaken(list); fits {
			return taken, true
		}
	}
	return nil, false
}

// appendTaken adds what the pod would take of each device; false if it does not fit.
func (a *attempt) appendTaken(list []worth.Taken) ([]worth.Taken, bool) {
	var refusals sharing.Refusals
	if r := a.pod.Requests; len(r) == 1 && r[0].Count == 1 {
		best := a.findBestDevice(0, nil, &refusals)
		if refusals.Refused() {
			return nil, false
		}
		v, cost, _ := a.fitDevice(int(best.device), nil, &r[0])
		return append(list, worth.Taken{Device: int(best.device), Cost: a.costToOthers(v, cost), Shares: 1}), true
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
	cost = a.costToOthers(&a.views[d], cost)
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

// costToOthers is what others cannot have of a device when the pod has c of it: all, if it accepts
// no other beside it.
func (a *attempt) costToOthers(v *sharing.View, c sharing.Cost) sharing.Cost {
	if a.alone { // few pods: this much is inlined
		return costOfAll(v, c.Loss)
	}
	return c
}

//go:noinline
func costOfAll(v *sharing.View, loss int64) sharing.Cost {
	return sharing.Cost{Memory: v.Device.Memory, Cores: 100, Loss: max(loss, v.Worth())}
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
