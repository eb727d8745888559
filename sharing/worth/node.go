// SPDX-License-Identifier: Apache-2.0

package worth

import (
	"math"

	"deviceshare/sharing"
)

// Taken is what a pod takes of one device of a node.
type Taken struct {
	Device int // index among the views
	Cost   sharing.Cost
	Shares int
}

// maxGroups bounds how many classes of one node are told apart. Devices of further classes
// do not count.
const maxGroups = 4

// node is the devices of a node by their classes.
type node struct {
	groups  [maxGroups]group
	used    int
	unknown bool
}

// group is the devices of one class on a node.
type group struct {
	class  int
	usable float64 // of what is free, in devices
	empty  int
}

// summarizeNode sums up the devices of a node when a pod has taken something of them.
func (m *Model) summarizeNode(views []sharing.View, taken []Taken) (n node) {
	last := -1
	for d := range views {
		v := &views[d]
		if last < 0 || !m.classes[last].matchesDevice(v.Device) {
			last = m.classIndex(v.Device)
		}
		if last < 0 {
			n.unknown = true
			continue
		}
		usable, empty := m.classes[last].usableLeft(v, findTaken(taken, d))
		n.addDevice(last, usable, empty)
	}
	return n
}

func (n *node) addDevice(class int, usable float64, empty bool) {
	i := 0
	for i < n.used && n.groups[i].class != class {
		i++
	}
	if i == maxGroups {
		return
	}
	if i == n.used {
		n.groups[i] = group{class: class}
		n.used++
	}
	n.groups[i].usable += usable
	if empty {
		n.groups[i].empty++
	}
}

// findTaken returns what is taken of a device, nil for nothing.
func findTaken(taken []Taken, device int) *Taken {
	for i := range taken {
		if taken[i].Device == device {
			return &taken[i]
		}
	}
	return nil
}

func (c *class) matchesDevice(d *sharing.Device) bool {
	return c.Memory == d.Memory && c.Cores == d.Cores && c.Mode == d.Mode && c.Model == d.Model
}

// classIndex returns the index of a device's class, -1 if it is not known.
func (m *Model) classIndex(d *sharing.Device) int {
	for i := range m.classes {
		if m.classes[i].matchesDevice(d) {
			return i
		}
	}
	return -1
}

// usableLeft returns how much of a device usual shares can fill once something was taken of it, in
// devices, and whether it is empty. A device that is cut into partitions is usable as far as it is
// free.
func (c *class) usableLeft(v *sharing.View, t *Taken) (usable float64, empty bool) {
	if !v.IsOpen() {
		return 0, false
	}
	if v.Partitioned() {
		usable = freeFraction(v, sharing.Cost{})
		if t != nil {
			usable = max(0, usable-lostPart(v, t.Cost))
		}
		return usable, t == nil && v.Empty()
	}
	if t == nil {
		return c.usable[freeHundredths(v, sharing.Cost{})], v.Empty()
	}
	if t.Cost.Cores >= wholeDevice || v.Sharers()+t.Shares >= v.Device.MaxShares {
		return 0, false
	}
	return c.usable[freeHundredths(v, t.Cost)], false
}

// freeHundredths returns how many hundredths of a device are free once something was taken: of
// memory or of compute, of which there is less.
func freeHundredths(v *sharing.View, c sharing.Cost) int {
	used := max(
		toHundredths(int64(v.UsedMemory().Plus(c.Memory)), int64(v.Device.Memory)),
		toHundredths(int64(v.UsedCores()+c.Cores), int64(v.Device.Cores)))
	return max(0, wholeDevice-used)
}

// freeFraction is room as a part of the device, exactly.
func freeFraction(v *sharing.View, c sharing.Cost) float64 {
	used := max(
		float64(v.UsedMemory().Plus(c.Memory))/float64(max(1, v.Device.Memory)),
		float64(v.UsedCores()+c.Cores)/float64(max(1, v.Device.Cores)))
	return max(0, 1-used)
}

// lostPart returns what later requests lose of a device that is cut into partitions, in
// devices: what its backend forecasts, else the part that is given.
func lostPart(v *sharing.View, c sharing.Cost) float64 {
	if worth := v.Worth(); worth > 0 {
		return float64(c.Loss) / float64(worth)
	}
	return max(float64(c.Memory)/float64(max(1, v.Device.Memory)), float64(c.Cores)/float64(max(1, v.Device.Cores)))
}

// DeviceLoss returns how much less of a device is usable with a share, in devices. A model that has
// learned nothing knows of no loss, except what a backend forecasts.
func (m *Model) DeviceLoss(v *sharing.View, c sharing.Cost) float64 {
	if v.Partitioned() {
		return lostPart(v, c)
	}
	i := -1
	if m != nil {
		i = m.classIndex(v.Device)
	}
	if i < 0 {
		return 0
	}
	before, _ := m.classes[i].usableLeft(v, nil)
	after, _ := m.classes[i].usableLeft(v, &Taken{Cost: c, Shares: 1})
	return before - after
}

func (m *Model) usableDevices(n *node, t int, cpu, memory float64) float64 {
	devices := 0.0
	for i := range n.used {
		g := &n.groups[i]
		l := &m.classes[g.class].limits[t]
		if !l.suits {
			continue
		}
		own := g.usable
		if l.together > 0 {
			own = float64(g.empty / l.together * l.together)
		}
		if l.cpu >= 0 {
			own = min(own, l.cpu*cpu)
		}
		if l.memory >= 0 {
			own = min(own, l.memory*memory)
		}
		devices += own
	}
	return devices
}

// NodeLoss returns how much less of a node later pods can use once a pod has taken devices and
// amounts of it, in devices: 0 for a node without devices, and if nothing has been learned.
// It allocates nothing.
func (m *Model) NodeLoss(h Host, taken []Taken, needs Amounts) float64 {
	if m == nil || len(h.Views) == 0 {
		return 0
	}
	before := m.summarizeNode(h.Views, nil)
	after := before
	if len(taken) > 0 {
		after = m.summarizeNode(h.Views, taken)
	}
	free := h.Free.Less(Amounts{})
	left := free.Less(needs)
	lost := 0.0
	for t := range m.kinds {
		lost += m.kinds[t].weight * (m.usableDevices(&before, t, free.CPU, free.Memory) - m.usableDevices(&after, t, left.CPU, left.Memory))
	}
	if math.IsNaN(lost) {
		return 0
	}
	return lost
}
