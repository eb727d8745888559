// SPDX-License-Identifier: Apache-2.0

package worth

import "deviceshare/sharing"

// Usable returns how much of devices in service is free, in whole devices, and how much of it an
// average pod of the mix can use: for each kind the devices that its shares fill, weighed by how
// much of devices pods of the kind ask for. Views are the devices of each node. CPUs and memory of
// nodes do not count, nor do the places that partitions may have. It reports false if no pod of the
// mix asks for devices.
func (m Mix) Usable(nodes [][]sharing.View) (unused, usable float64, ok bool) {
	a := newAverage(m, nodes)
	for _, views := range nodes {
		for i := range views {
			if v := &views[i]; v.Device.IsInService() {
				unused += freeFraction(v, sharing.Cost{})
				usable += a.filledPart(v)
			}
		}
		usable += a.fillTogether(views)
	}
	return unused, usable, a.total > 0
}

// average is what an average pod of a mix asks of each class of devices.
type average struct {
	classes map[Class][]filler
	total   float64 // of the weights of all kinds
}

// filler is a kind of pod on one class of devices.
type filler struct {
	weight float64
	size   int // of a share, in hundredths of a device; 0 if the class does not suit
	// together is how many whole devices of one node a pod needs, 0 for shares.
	together int
}

// newAverage weighs the kinds that ask for devices by what they ask for, on the average device that
// suits them. A kind that none suits weighs as one that asks for whole devices.
func newAverage(m Mix, nodes [][]sharing.View) *average {
	a := &average{classes: map[Class][]filler{}}
	numbers := map[Class]int{}
	for _, views := range nodes {
		for i := range views {
			numbers[ClassOf(views[i].Device)]++
		}
	}
	for _, part := range m.frequentKinds() {
		k := &part.Kind
		if k.Devices == 0 {
			continue
		}
		weight := float64(part.Count * k.Devices)
		if size := k.meanSize(numbers); size > 0 {
			weight *= size
		}
		a.total += weight
		for c := range numbers {
			f := filler{weight: weight, size: k.sizeOn(&c)}
			if f.size == wholeDevice && k.Devices > 1 {
				f.together = k.Devices
			}
			a.classes[c] = append(a.classes[c], f)
		}
	}
	return a
}

// filledPart returns how much of a device the shares of an average pod fill, in devices. Pods that
// need several whole devices are left out.
func (a *average) filledPart(v *sharing.View) float64 {
	if !v.IsOpen() {
		return 0
	}
	left, slots, filled := freeHundredths(v, sharing.Cost{}), v.Device.MaxShares-v.Sharers(), 0.0
	for _, f := range a.classes[ClassOf(v.Device)] {
		if f.size > 0 && f.together == 0 {
			filled += f.weight * float64(min(left/f.size, slots)*f.size)
		}
	}
	return filled / wholeDevice / a.total
}

// fillTogether is fill for pods that need several whole devices of one node.
func (a *average) fillTogether(views []sharing.View) float64 {
	empty := map[Class]int{}
	for i := range views {
		if v := &views[i]; v.Empty() && v.IsOpen() {
			empty[ClassOf(v.Device)]++
		}
	}
	filled := 0.0
	for class, n := range empty {
		for _, f := range a.classes[class] {
			if f.together > 0 {
				filled += f.weight * float64(n/f.together*f.together)
			}
		}
	}
	return filled / a.total
}
