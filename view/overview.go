// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Overview is what a page shows first. It grows with the kinds of nodes, not with their number.
type Overview struct {
	Nodes   int `json:"nodes"`
	Waiting int `json:"waiting"`
	// Total sums up all devices, Groups those of the nodes of one kind, the largest first.
	Total  Sum   `json:"total"`
	Groups []Sum `json:"groups"`
	// Modes are the modes of the devices.
	Modes       []string  `json:"modes"`
	Trouble     []Trouble `json:"problems"`
	MoreTrouble int       `json:"moreProblems,omitempty"`
	Queues      []Queue   `json:"queues"`
}

// Sum sums up the devices of several nodes.
type Sum struct {
	Name    string `json:"name"`
	Nodes   int    `json:"nodes"`
	Devices int    `json:"devices"`
	// Trouble counts the devices that are broken or change their mode, and those of nodes that take
	// no pods.
	Trouble int `json:"trouble"`
	Shares  int `json:"shares"`
	// The parts that are promised, in thousandths, and the same for people.
	MemoryPart int    `json:"memoryPart"`
	CoresPart  int    `json:"coresPart"`
	Memory     string `json:"memory"`
	Cores      string `json:"cores"`

	memory, memoryPromised int64
	cores, coresPromised   int
}

// Overview sums the cluster up for a page. The devices are those of Devices.
func (c *Cluster) Overview(devices []NodeDevices) Overview {
	o := Overview{Nodes: len(devices), Waiting: len(c.waitingPods()), Queues: c.Queues(), Groups: []Sum{}, Modes: []string{}, Trouble: []Trouble{}}
	groups, modes := map[string]*Sum{}, map[string]bool{}
	for i := range devices {
		n := &devices[i]
		name := groupName(n)
		if groups[name] == nil {
			groups[name] = &Sum{Name: name}
		}
		groups[name].addNode(n)
		o.Total.addNode(n)
		for k := range n.Devices {
			modes[n.Devices[k].Mode] = true
		}
	}
	for _, g := range groups {
		g.fillDerived()
		o.Groups = append(o.Groups, *g)
	}
	slices.SortFunc(o.Groups, func(a, b Sum) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Name, b.Name)) })
	o.Total.fillDerived()
	o.Modes = append(o.Modes, slices.Sorted(maps.Keys(modes))...)
	o.Trouble = append(o.Trouble, c.findTroubles()...)
	if more := len(o.Trouble) - mostTrouble; more > 0 {
		o.Trouble, o.MoreTrouble = o.Trouble[:mostTrouble], more
	}
	return o
}

func (s *Sum) addNode(n *NodeDevices) {
	s.Nodes++
	for i := range n.Devices {
		d := &n.Devices[i]
		s.Devices++
		s.Shares += len(d.Sharers)
		if d.Health != "ok" || n.Unusable != "" {
			s.Trouble++
		}
		s.memory, s.memoryPromised = s.memory+d.Memory, s.memoryPromised+d.MemoryPromised
		s.cores, s.coresPromised = s.cores+d.Cores, s.coresPromised+d.CoresPromised
	}
}

// From manyBytes and manyCores on sums are told in larger units than those of one device.
const tib, manyBytes, manyCores = 1 << 40, 10 << 40, 100 * 100

// fillDerived fills in what is told of the sums.
func (s *Sum) fillDerived() {
	s.MemoryPart, s.CoresPart = permilleOf(s.memoryPromised, s.memory), permilleOf(int64(s.coresPromised), int64(s.cores))
	s.Memory = memoryText(s.memoryPromised) + " of " + memoryText(s.memory)
	if s.memory >= manyBytes {
		s.Memory = fmt.Sprintf("%.1f of %.1f TiB", float64(s.memoryPromised)/tib, float64(s.memory)/tib)
	}
	s.Cores = fmt.Sprintf("%d of %d%%", s.coresPromised, s.cores)
	if s.cores >= manyCores {
		s.Cores = fmt.Sprintf("%d of %d devices", s.coresPromised/100, s.cores/100)
	}
}

// permilleOf is how many thousandths some is of all.
func permilleOf(some, all int64) int {
	if all == 0 {
		return 0
	}
	return int(float64(some) / float64(all) * wholePermille)
}

// Waiting is a pod that waits, with why.
type Waiting struct {
	// Since is when it was made, by RFC 3339, "" if that is not known.
	Since string `json:"since"`
	Why
}

// Waiting lists pods that wait, the oldest first, from offset on and at most limit of them, and
// tells how many there are.
func (c *Cluster) Waiting(offset, limit int) ([]Waiting, int) {
	pods := c.waitingPods()
	out := []Waiting{}
	for i := offset; i >= 0 && i < len(pods) && len(out) < limit; i++ {
		w := Waiting{Why: c.explainPod(pods[i])}
		if !pods[i].CreationTimestamp.IsZero() {
			w.Since = pods[i].CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z")
		}
		out = append(out, w)
	}
	return out, len(pods)
}
