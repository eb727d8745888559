// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"math"
	"slices"
)

// Rule is a published way to place.
type Rule interface {
	// Take places a pod; false if it fits nowhere.
	Take(p *Pod) bool
}

// machine is what is free of a node: of each device in thousandths.
type machine struct {
	cpu, memory int64
	free        []int
	model       string
}

func machines(nodes []Node) []machine {
	out := make([]machine, len(nodes))
	for i, n := range nodes {
		out[i] = machine{cpu: n.CPU, memory: n.Memory, model: n.Model, free: slices.Repeat([]int{1000}, n.Devices)}
	}
	return out
}

func (m *machine) fits(p *Pod) bool {
	if m.cpu < p.CPU || m.memory < p.Memory || p.Devices > 0 && !p.Accepts(m.model) {
		return false
	}
	n := 0
	for _, f := range m.free {
		if f >= p.Share {
			n++
		}
	}
	return n >= p.Devices
}

// take gives a pod the devices from one on that fit.
func (m *machine) take(p *Pod, from int) {
	m.cpu -= p.CPU
	m.memory -= p.Memory
	for d, n := from, p.Devices; n > 0; d++ {
		if m.free[d] >= p.Share {
			m.free[d] -= p.Share
			n--
		}
	}
}

// NewFirstFit takes the first node, and the first device on it.
func NewFirstFit(nodes []Node) Rule { return firstFit(machines(nodes)) }

type firstFit []machine

func (f firstFit) Take(p *Pod) bool {
	for i := range f {
		if f[i].fits(p) {
			f[i].take(p, 0)
			return true
		}
	}
	return false
}

// NewFGD is fragmentation gradient descent (Weng et al., USENIX ATC 2023): the node and the device
// where what pods of the workload cannot use grows least. It knows the workload beforehand.
func NewFGD(nodes []Node, workload []Pod) Rule {
	return &fgd{machines: machines(nodes), typical: typical(workload)}
}

type fgd struct {
	machines []machine
	typical  []share
}

// share is a kind of pod and how often it comes.
type share struct {
	pod  Pod
	part float64
}

// typical returns the most frequent kinds, which make up 95 of 100 pods.
func typical(workload []Pod) []share {
	type key struct {
		cpu            int64
		devices, share int
		models         string
	}
	index, list := map[key]int{}, []share{}
	for _, p := range workload {
		k := key{p.CPU, p.Devices, p.Share, ""}
		for _, m := range p.Models {
			k.models += m + "|"
		}
		i, ok := index[k]
		if !ok {
			i = len(list)
			index[k] = i
			list = append(list, share{pod: p})
		}
		list[i].part++
	}
	slices.SortStableFunc(list, func(a, b share) int { return int(b.part - a.part) })
	sum := 0.0
	for i := range list {
		if sum >= 0.95*float64(len(workload)) {
			list = list[:i]
			break
		}
		sum += list[i].part
	}
	for i := range list {
		list[i].part /= sum
	}
	return list
}

// fragments is what typical pods cannot use of a machine, in thousandths of a device.
func (f *fgd) fragments(m *machine) float64 {
	total := 0
	for _, free := range m.free {
		total += free
	}
	if total == 0 {
		return 0
	}
	sum := 0.0
	for i := range f.typical {
		p := &f.typical[i].pod
		lost, fit := 0, 0
		for _, free := range m.free {
			if free < p.Share {
				lost += free
			} else {
				fit++
			}
		}
		if p.Devices == 0 || p.CPU > m.cpu || !p.Accepts(m.model) || fit < p.Devices {
			lost = total
		}
		sum += f.typical[i].part * float64(lost)
	}
	return sum
}

// Take implements Rule. Scores are whole percents, as they were published.
func (f *fgd) Take(p *Pod) bool {
	node, device, best := -1, 0, math.Inf(-1)
	for i := range f.machines {
		m := &f.machines[i]
		if !m.fits(p) {
			continue
		}
		before := f.fragments(m)
		try := func(d int) {
			after := machine{cpu: m.cpu, memory: m.memory, model: m.model, free: slices.Clone(m.free)}
			after.take(p, d)
			score := math.Floor(100 / (1 + math.Exp(-(before-f.fragments(&after))/1000)))
			if score > best {
				node, device, best = i, d, score
			}
		}
		if p.Devices != 1 || p.Share == 1000 {
			try(0)
			continue
		}
		for d, free := range m.free {
			if free >= p.Share && !slices.Contains(m.free[:d], free) {
				try(d)
			}
		}
	}
	if node < 0 {
		return false
	}
	f.machines[node].take(p, device)
	return true
}
