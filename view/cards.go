// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Card is one node as a page draws it.
type Card struct {
	Node string `json:"node"`
	// Group is what kind of node it is: the models of its devices with their numbers.
	Group string `json:"group"`
	// Unusable is why the node takes no pods with devices, "" if it does.
	Unusable string  `json:"unusable,omitempty"`
	Strips   []Strip `json:"strips"`
}

// Strip is one device as a page draws it.
type Strip struct {
	Index int    `json:"index"`
	Mode  string `json:"mode"`
	Model string `json:"model"`
	// Text is what of it is promised, Place where it is in its node.
	Text  string `json:"text"`
	Place string `json:"place"`
	// Trouble is why the device takes no pods, "" if it does.
	Trouble string `json:"trouble,omitempty"`
	// Slots is into how many memory slices the device can be cut, 0 if it is not in mode mig.
	Slots    int       `json:"slots,omitempty"`
	Segments []Segment `json:"segments"`
}

// Segment is the part of a strip that one share has.
type Segment struct {
	// Letter names the share in its strip, as `kubectl deviceshare devices` does.
	Letter string `json:"letter"`
	Text   string `json:"text"`
	// Start and Width are in thousandths of the strip.
	Start int `json:"start"`
	Width int `json:"width"`
}

// wholePermille is the width of a strip, narrowest that of a share that has little of it.
const wholePermille, narrowest = 1000, 12

func drawCard(n *NodeDevices) Card {
	out := Card{Node: n.Node, Group: groupName(n), Unusable: n.Unusable, Strips: make([]Strip, 0, len(n.Devices))}
	for i := range n.Devices {
		out.Strips = append(out.Strips, n.Devices[i].drawStrip())
	}
	return out
}

func (d *Device) drawStrip() Strip {
	s := Strip{Index: d.Index, Mode: d.Mode, Model: d.Model, Text: d.promisedText(), Place: d.identityText(), Slots: d.Slices, Segments: d.layOutSegments()}
	if d.Health != "ok" {
		s.Trouble = d.Health
	}
	return s
}

// identityText says what identifies a device: its UUID, where it is in its node, and its links.
func (d *Device) identityText() string {
	parts := []string{d.ID}
	if d.PCI != "" {
		parts = append(parts, d.PCI)
	}
	if d.NUMA >= 0 {
		parts = append(parts, "numa "+itoa(d.NUMA))
	}
	return strings.Join(append(parts, d.Links...), "  ")
}

// layOutSegments lays the shares out. A partition has its place; other shares follow one another,
// each as wide as its part of the memory. Where that is more than there is, all are narrower.
func (d *Device) layOutSegments() []Segment {
	out := make([]Segment, 0, len(d.Sharers))
	end := 0
	for i := range d.Sharers {
		s := &d.Sharers[i]
		g := Segment{Letter: shareLetter(i), Text: s.describeShare(), Start: end}
		if d.Slices > 0 {
			g.Start, g.Width = s.Start*wholePermille/d.Slices, s.Size*wholePermille/d.Slices
		} else {
			g.Width = narrowest
			if d.Memory > 0 {
				g.Width = max(narrowest, int(float64(s.Memory)/float64(d.Memory)*wholePermille))
			}
			end += g.Width
		}
		out = append(out, g)
	}
	if end > wholePermille {
		for i := range out {
			next := (out[i].Start + out[i].Width) * wholePermille / end
			out[i].Start = out[i].Start * wholePermille / end
			out[i].Width = next - out[i].Start
		}
	}
	return out
}

// groupName is "7 × A100, 1 × H100".
func groupName(n *NodeDevices) string {
	models := map[string]int{}
	for i := range n.Devices {
		models[n.Devices[i].Model]++
	}
	names := slices.SortedFunc(maps.Keys(models), func(a, b string) int {
		return cmp.Or(cmp.Compare(models[b], models[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d × %s", models[name], name)
	}
	return strings.Join(names, ", ")
}

// Condition is what a person looks for in nodes.
type Condition string

// The conditions: any node, one with something wrong, with a device that has room, or with a device
// that nobody shares.
const (
	AnyCondition Condition = ""
	InTrouble    Condition = "trouble"
	HasRoom      Condition = "room"
	HasIdle      Condition = "idle"
)

// Filter selects nodes. Empty fields select all.
type Filter struct {
	// Text is looked for in the names of nodes, models and pods, whatever the case.
	Text string
	// Group is a group's name, Mode the mode of a device.
	Group, Mode string
	Condition   Condition
}

// Cards draws the nodes that a filter selects, from offset on and at most limit of them, and tells
// how many it selects.
func Cards(list []NodeDevices, f Filter, offset, limit int) ([]Card, int) {
	f.Text = strings.ToLower(strings.TrimSpace(f.Text))
	out, total := []Card{}, 0
	for i := range list {
		if !f.selectsNode(&list[i]) {
			continue
		}
		if total >= offset && len(out) < limit {
			out = append(out, drawCard(&list[i]))
		}
		total++
	}
	return out, total
}

func (f *Filter) selectsNode(n *NodeDevices) bool {
	return (f.Group == "" || groupName(n) == f.Group) && f.hasMode(n) && f.matchesCondition(n) && f.matchesText(n)
}

func (f *Filter) hasMode(n *NodeDevices) bool {
	return f.Mode == "" || slices.ContainsFunc(n.Devices, func(d Device) bool { return d.Mode == f.Mode })
}

// matchesCondition looks at one condition. Room of a node that takes no pods is no room.
func (f *Filter) matchesCondition(n *NodeDevices) bool {
	well := func(d *Device) bool { return n.Unusable == "" && d.Health == "ok" }
	any := func(is func(*Device) bool) bool {
		return slices.ContainsFunc(n.Devices, func(d Device) bool { return is(&d) })
	}
	switch f.Condition {
	case InTrouble:
		return n.Unusable != "" || any(func(d *Device) bool { return d.Health != "ok" })
	case HasRoom:
		return any(func(d *Device) bool { return well(d) && d.MemoryFree > 0 })
	case HasIdle:
		return any(func(d *Device) bool { return well(d) && len(d.Sharers) == 0 })
	}
	return true
}

func (f *Filter) matchesText(n *NodeDevices) bool {
	has := func(text string) bool { return strings.Contains(strings.ToLower(text), f.Text) }
	return f.Text == "" || has(n.Node) || slices.ContainsFunc(n.Devices, func(d Device) bool {
		return has(d.Model) || slices.ContainsFunc(d.Sharers, func(s Sharer) bool { return has(s.Pod) })
	})
}
