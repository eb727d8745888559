// SPDX-License-Identifier: Apache-2.0

package worth

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"deviceshare/sharing"
)

// Class is what devices have in common for which a share of the same size is the same.
type Class struct {
	Model  string
	Memory sharing.Bytes
	Cores  sharing.Percent
	Mode   sharing.Mode
}

// ClassOf returns the class of a device.
func ClassOf(d *sharing.Device) Class {
	return Class{Model: d.Model, Memory: d.Memory, Cores: d.Cores, Mode: d.Mode}
}

func (c *Class) compareTo(o *Class) int {
	return cmp.Or(cmp.Compare(c.Model, o.Model), cmp.Compare(c.Memory, o.Memory), cmp.Compare(c.Cores, o.Cores), cmp.Compare(c.Mode, o.Mode))
}

// Model is what has been learned. It is immutable and safe for concurrent use; nil is a
// model that has learned nothing.
type Model struct {
	classes []class
	kinds   []kind
}

// class is a class with what pods make of it.
type class struct {
	Class
	// usable is how much of each free part usual shares can fill.
	usable bySize
	// limits are how far a node's amounts go, by kind.
	limits []limit
}

// kind is a kind of pod, as far as it is the same for every class.
type kind struct {
	// share is the kind's part of all that is asked for, in devices; the sum is 1.
	share float64
	// weight is the share, more for kinds that few devices serve.
	weight float64
}

// limit is what a kind makes of a node of one class.
type limit struct {
	suits bool
	// together is how many whole devices of one node a pod needs, 0 for shares.
	together int
	// cpu and memory are the devices for which one unit of the amount is enough; negative if the
	// kind needs nothing of it.
	cpu, memory float64
}

// maxClasses bounds how many classes are told apart: more than any known cluster has.
const maxClasses = 64

// NewModel learns from a mix. Devices says how many there are of each class. Nil is returned if
// the mix says nothing about devices.
func NewModel(mix Mix, devices map[Class]int) *Model {
	m := &Model{}
	for _, c := range slices.SortedFunc(maps.Keys(devices), func(a, b Class) int { return a.compareTo(&b) }) {
		if c.Memory > 0 && c.Cores > 0 && len(m.classes) < maxClasses {
			m.classes = append(m.classes, class{Class: c, usable: usableParts(usualSizes(mix.demandBySize(&c)))})
		}
	}
	total := 0.0
	for _, part := range mix.frequentKinds() {
		k := &part.Kind
		share := float64(part.Count*k.Devices) * k.meanSize(devices)
		if share == 0 {
			continue
		}
		m.kinds = append(m.kinds, kind{share: share})
		total += share
		for i := range m.classes {
			m.classes[i].limits = append(m.classes[i].limits, k.limitOn(&m.classes[i].Class))
		}
	}
	if total == 0 {
		return nil
	}
	for t := range m.kinds {
		m.kinds[t].share /= total
		m.kinds[t].weight = m.kinds[t].share
	}
	return m
}

// limitOn returns what the kind makes of a node with devices of a class.
func (k *Kind) limitOn(c *Class) limit {
	size := k.sizeOn(c)
	l := limit{suits: size > 0, cpu: -1, memory: -1}
	if !l.suits {
		return l
	}
	if size == wholeDevice && k.Devices > 1 {
		l.together = k.Devices
	}
	served := float64(k.Devices*size) / wholeDevice
	if k.Needs.CPU > 0 {
		l.cpu = served / k.Needs.CPU
	}
	if k.Needs.Memory > 0 {
		l.memory = served / k.Needs.Memory
	}
	return l
}

// Host is a node: its devices, and what is free of it beside them.
type Host struct {
	Views []sharing.View
	Free  Amounts
}

// scarcest bounds how scarce a kind's devices count at most: as this part of all.
const scarcest = 0.01

// Weigh returns the model with more weight on kinds of which the nodes can serve little: the
// square of what is free by what is usable to the kind. Pods that need several whole
// devices of one node keep their weight, since they are rarely served by a node at all.
// It reports whether the model knows the classes of all devices.
func (m *Model) Weigh(hosts iter.Seq[Host]) (weighed *Model, knowsAll bool) {
	if m == nil {
		return nil, true
	}
	knowsAll = true
	free, usable := 0.0, make([]float64, len(m.kinds))
	for h := range hosts {
		n := m.summarizeNode(h.Views, nil)
		knowsAll = knowsAll && !n.unknown
		for i := range n.used {
			free += n.groups[i].usable
		}
		for t := range m.kinds {
			usable[t] += m.usableDevices(&n, t, h.Free.CPU, h.Free.Memory)
		}
	}
	weighed = &Model{classes: m.classes, kinds: slices.Clone(m.kinds)}
	for t := range weighed.kinds {
		k := &weighed.kinds[t]
		k.weight = k.share
		if free > 0 && !m.needsWholeDevices(t) {
			scarce := free / max(usable[t], scarcest*free)
			k.weight *= scarce * scarce
		}
	}
	return weighed, knowsAll
}

// needsWholeDevices reports whether pods of a kind need several whole devices of one node.
func (m *Model) needsWholeDevices(t int) bool {
	for i := range m.classes {
		if l := &m.classes[i].limits[t]; l.suits && l.together == 0 {
			return false
		}
	}
	return true
}
