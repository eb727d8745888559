// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// WhatIf is what would become of a cluster.
type WhatIf struct {
	// Pods are those that were asked about, in the order in which they came.
	Pods    []Outcome `json:"pods"`
	Evicted []Evicted `json:"evicted,omitempty"`
	Before  Totals    `json:"before"`
	After   Totals    `json:"after"`
	// Nodes are those on which something is different.
	Nodes []NodeChange `json:"nodes"`
	// Cycles is how often the scheduler looked at the cluster.
	Cycles int      `json:"cycles"`
	Notes  []string `json:"notes,omitempty"`
}

// Was is where a pod comes from.
type Was string

// Where pods come from: they are new, lost their node, or waited before.
const (
	Added  Was = "new"
	Moved  Was = "moved"
	Waited Was = "waited"
)

// Outcome is what becomes of one pod: it has a node, or a reason to wait.
type Outcome struct {
	Pod   string    `json:"pod"`
	Was   Was       `json:"was"`
	Node  string    `json:"node,omitempty"`
	Holds []Holding `json:"holds,omitempty"`
	Why   string    `json:"why,omitempty"`
}

// Evicted is a pod that had to leave for another.
type Evicted struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	Why  string `json:"why"`
}

// Totals sum up a cluster.
type Totals struct {
	Placed  int     `json:"placed"`
	Waiting int     `json:"waiting"`
	Models  []Model `json:"models"`
}

// NodeChange is one node before and after. What a node does not have is zero.
type NodeChange struct {
	Node   string  `json:"node"`
	Before Promise `json:"before"`
	After  Promise `json:"after"`
}

// Promise is what pods were given of a node: shares, memory in bytes, compute in percent of a
// device.
type Promise struct {
	Shares int   `json:"shares"`
	Memory int64 `json:"memory"`
	Cores  int   `json:"cores"`
}

// CompareNodes returns the nodes of which pods hold something else, in the order of their names.
func CompareNodes(before, after *Cluster) []NodeChange {
	changes := map[string]*NodeChange{}
	for i, c := range []*Cluster{before, after} {
		for _, n := range c.Devices("") {
			change := changes[n.Node]
			if change == nil {
				change = &NodeChange{Node: n.Node}
				changes[n.Node] = change
			}
			sum := &change.Before
			if i == 1 {
				sum = &change.After
			}
			for k := range n.Devices {
				d := &n.Devices[k]
				sum.Shares, sum.Memory, sum.Cores = sum.Shares+len(d.Sharers), sum.Memory+d.MemoryPromised, sum.Cores+d.CoresPromised
			}
		}
	}
	out := []NodeChange{}
	for _, change := range changes {
		if change.Before != change.After {
			out = append(out, *change)
		}
	}
	slices.SortFunc(out, func(a, b NodeChange) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// mostNodes bounds the table of nodes for people; wide shows all.
const mostNodes = 20

// Text writes it for people; wide lists all nodes.
func (w *WhatIf) Text(p Paint, wide bool) string {
	var b strings.Builder
	w.writePods(&b, p)
	for _, e := range w.Evicted {
		fmt.Fprintf(&b, "%s\n", p.alarm(plainText(fmt.Sprintf("evicted: %s from node %s: %s", e.Pod, e.Node, e.Why))))
	}
	fmt.Fprintf(&b, "%s before | %d after; waiting: %d before | %d after\n\n", countText(w.Before.Placed, "pod"), w.After.Placed, w.Before.Waiting, w.After.Waiting)
	w.writeModels(&b, p)
	w.writeNodes(&b, p, wide)
	for _, n := range w.Notes {
		fmt.Fprintf(&b, "%s\n", p.faint(plainText(n)))
	}
	return b.String()
}

func (w *WhatIf) writePods(b *strings.Builder, p Paint) {
	if len(w.Pods) == 0 {
		return
	}
	t := table{}
	t.addRow("POD", "WAS", "NODE", "CONTAINER", "DEVICE", "MEMORY", "COMPUTE", "MODE")
	for i := range w.Pods {
		o := &w.Pods[i]
		switch {
		case o.Node == "":
			t.addRow(o.Pod, string(o.Was), "waits")
		case len(o.Holds) == 0:
			t.addRow(o.Pod, string(o.Was), o.Node)
		}
		for _, h := range o.Holds {
			t.addRow(o.Pod, string(o.Was), o.Node, h.Container, itoa(h.Device), memoryText(h.Memory), coresText(h.Cores), strings.TrimSpace(h.Mode+" "+h.Profile))
		}
	}
	t.writeRows(b, p)
	b.WriteByte('\n')
	waiting := false
	for i := range w.Pods {
		if o := &w.Pods[i]; o.Node == "" {
			waiting = true
			fmt.Fprintf(b, "%s\n", plainText(fmt.Sprintf("%s waits: %s", o.Pod, o.Why)))
		}
	}
	if waiting {
		b.WriteByte('\n')
	}
}

func coresText(cores int) string {
	if cores == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", cores)
}

func (w *WhatIf) writeModels(b *strings.Builder, p Paint) {
	before := map[string]Model{}
	var names []string
	for _, m := range w.Before.Models {
		before[m.Model] = m
		names = append(names, m.Model)
	}
	after := map[string]Model{}
	for _, m := range w.After.Models {
		after[m.Model] = m
		names = append(names, m.Model)
	}
	slices.Sort(names)
	t := table{}
	t.addRow("MODEL", "DEVICES", "SHARES", "MEMORY PROMISED", "MEMORY FREE", "COMPUTE PROMISED")
	for _, name := range slices.Compact(names) {
		x, y := before[name], after[name]
		t.addRow(name, beforeAndAfter(itoa(x.Devices), itoa(y.Devices)), beforeAndAfter(itoa(x.Shares), itoa(y.Shares)), beforeAndAfter(memoryText(x.MemoryPromised), memoryText(y.MemoryPromised)),
			beforeAndAfter(memoryText(x.MemoryFree), memoryText(y.MemoryFree)), beforeAndAfter(fmt.Sprintf("%d%%", x.CoresPromised), fmt.Sprintf("%d%%", y.CoresPromised)))
	}
	t.writeRows(b, p)
}

func beforeAndAfter(before, after string) string { return before + " | " + after }

func (w *WhatIf) writeNodes(b *strings.Builder, p Paint, wide bool) {
	if len(w.Nodes) == 0 {
		return
	}
	b.WriteByte('\n')
	t, shown := table{}, w.Nodes
	if !wide {
		shown = shown[:min(len(shown), mostNodes)]
	}
	t.addRow("NODE", "SHARES", "MEMORY PROMISED", "COMPUTE PROMISED")
	for _, n := range shown {
		t.addRow(n.Node, beforeAndAfter(itoa(n.Before.Shares), itoa(n.After.Shares)), beforeAndAfter(memoryText(n.Before.Memory), memoryText(n.After.Memory)),
			beforeAndAfter(fmt.Sprintf("%d%%", n.Before.Cores), fmt.Sprintf("%d%%", n.After.Cores)))
	}
	t.writeRows(b, p)
	if more := len(w.Nodes) - len(shown); more > 0 {
		fmt.Fprintf(b, "and %d more (-o wide)\n", more)
	}
}
