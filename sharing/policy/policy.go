// SPDX-License-Identifier: Apache-2.0

// Package policy holds the placement policies. A policy orders the devices and the nodes that
// fit. Each policy is one small file of pure functions.
package policy

import (
	"deviceshare/sharing"
	"deviceshare/sharing/worth"
)

// MaxScore bounds the score of a device, so that scores of several devices can
// be added.
const MaxScore int64 = 1 << 48

// Policy prefers one device over another and one node over another. Methods are
// pure, do not allocate, and give the same answer for the same arguments. The zero
// value is no policy: it has no name.
type Policy struct {
	rule rule
	// model is what fragmentation has learned; nil for nothing.
	model *worth.Model
	// points are added to the score of a device, by its mode.
	points map[sharing.Mode]int64
}

type rule int

const (
	fragmentation rule = iota + 1
	binpack
	spread
)

// Names returns what users may write, in the order in which policies are documented.
func Names() []string { return []string{"fragmentation", "binpack", "spread"} }

// Named returns the policy users call by this name, exactly; false if there is
// none.
func Named(name string) (Policy, bool) {
	for i, known := range Names() {
		if name == known {
			return Policy{rule: rule(i + 1)}, true
		}
	}
	return Policy{}, false
}

// Fragmentation returns the policy of that name with what has been learned; nil is nothing.
func Fragmentation(m *worth.Model) Policy { return Policy{rule: fragmentation, model: m} }

// Name is what users write, "" for no policy.
func (p Policy) Name() string {
	if p.rule == 0 {
		return ""
	}
	return Names()[p.rule-1]
}

// Learns reports whether the policy scores nodes by what later pods lose there, in tenths of a
// device, also for pods without devices. Policies that do not learn give 0 to 100.
func (p Policy) Learns() bool { return p.rule == fragmentation }

// Device scores taking c of the device, from -MaxScore to MaxScore;
// higher is preferred. Equal scores are decided by the order of the devices.
// The view must be neither changed nor kept, as in sharing.Backend.
func (p Policy) Device(v *sharing.View, c sharing.Cost) int64 {
	score := p.points[v.Device.Mode]
	switch p.rule {
	case fragmentation:
		return score + leastLostDevice(p.model, v, c)
	case binpack:
		return score + fullestDevice(v, c)
	case spread:
		return score + emptiestDevice(v, c)
	}
	return score
}

// Node scores placing a pod on a node, where it takes this much of devices and needs these amounts
// beside them; higher is preferred. Nothing is taken for a pod without devices, which is nil. What
// modes are worth is not in it.
func (p Policy) Node(h worth.Host, pod *sharing.PodRequest, taken []worth.Taken, needs worth.Amounts) float64 {
	switch {
	case p.rule == fragmentation:
		return leastLostNode(p.model, h, taken, needs)
	case pod == nil:
		return 0
	case p.rule == binpack:
		return fullestNode(h.Views, pod, taken)
	case p.rule == spread:
		return emptiestNode(h.Views, pod)
	}
	return 0
}

// million is the resolution of fractions.
const million = 1_000_000

// toMillionths returns part/whole in millionths, from 0 to a million. A device that offers
// no memory or compute counts as full. One division and one product of floats are
// rounded the same way on every machine.
func toMillionths(part, whole int64) int64 {
	if part >= whole {
		return million
	}
	if part < 1 {
		return 0
	}
	return int64(float64(part) / float64(whole) * million)
}

// fullnessAfter is how much of a device is taken when more memory and compute than
// now are given, in millionths of memory plus millionths of compute.
func fullnessAfter(v *sharing.View, memory sharing.Bytes, cores sharing.Percent) int64 {
	return toMillionths(int64(v.UsedMemory().Plus(memory)), int64(v.Device.Memory)) +
		toMillionths(int64(v.UsedCores()+cores), int64(v.Device.Cores))
}

// nodeLoad is how much of what a node offers this pod is taken, in whole percent
// rounded up: a node with anything on it never looks empty. It is an average, so
// that a node does not win or lose by its number of devices. The second value is
// false if the node offers the pod nothing.
func nodeLoad(views []sharing.View, pod *sharing.PodRequest) (int64, bool) {
	var sum, n int64
	for i := range views {
		v := &views[i]
		if v.Offered(pod) {
			sum += fullnessAfter(v, 0, 0)
			n++
		}
	}
	if n == 0 {
		return 0, false
	}
	const percent = 2 * million / 100
	return (sum/n + percent - 1) / percent, true
}
