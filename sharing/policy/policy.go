// SPDX-License-Identifier: Apache-2.0

// Package policy holds the placement policies. A policy orders the devices and the nodes that
// fit. Each policy is one small file of pure functions.
package policy

import "deviceshare/sharing"

// MaxScore bounds the score of a device, so that scores of several devices can
// be added.
const MaxScore int64 = 1 << 48

// Policy prefers one device over another and one node over another. Methods are
// pure, do not allocate, and give the same answer for the same arguments.
type Policy interface {
	// Name is what users write.
	Name() string
	// Device scores taking c of the device, from -MaxScore to MaxScore;
	// higher is preferred. Equal scores are decided by the order of the devices.
	// The view must be neither changed nor kept, as in sharing.Backend.
	Device(v *sharing.View, c sharing.Cost) int64
	// Node scores a node as it is before the pod is placed, 0 to 100; higher is
	// preferred.
	Node(views []sharing.View, pod *sharing.PodRequest) int64
}

// allPolicies lists the policies in the order in which they are documented.
func allPolicies() []Policy { return []Policy{fragmentation{}, binpack{}, spread{}} }

// Named returns the policy users call by this name, exactly; false if there is
// none.
func Named(name string) (Policy, bool) {
	for _, p := range allPolicies() {
		if p.Name() == name {
			return p, true
		}
	}
	return nil, false
}

// Names returns what users may write.
func Names() []string {
	names := make([]string, 0, len(allPolicies()))
	for _, p := range allPolicies() {
		names = append(names, p.Name())
	}
	return names
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
