// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"
)

// Text writes the status for people.
func (s *Status) Text(p Paint) string {
	var b strings.Builder
	if len(s.Models) == 0 {
		b.WriteString("No node publishes devices.\n")
	} else {
		t := table{}
		t.addRow("MODEL", "DEVICES", "SHARES", "MEMORY PROMISED", "FREE", "COMPUTE PROMISED", "FREE")
		for _, m := range s.Models {
			t.addRow(m.Model, m.deviceCountText(), itoa(m.Shares), memoryText(m.MemoryPromised)+" of "+memoryText(m.Memory), memoryText(m.MemoryFree),
				fmt.Sprintf("%d of %d%%", m.CoresPromised, m.Cores), fmt.Sprintf("%d%%", m.CoresFree))
		}
		t.writeRows(&b, p)
		fmt.Fprintf(&b, "on %s\n", countText(s.Nodes, "node"))
	}
	if s.Waiting > 0 {
		fmt.Fprintf(&b, "\n%s\n", p.bold(plainText(fmt.Sprintf("Waiting: %s", countText(s.Waiting, "pod")))))
		for _, w := range s.Longest {
			fmt.Fprintf(&b, "  %s\n", plainText(w.Answer))
		}
		if more := s.Waiting - len(s.Longest); more > 0 {
			fmt.Fprintf(&b, "  and %d more\n", more)
		}
	}
	if len(s.Trouble) > 0 {
		fmt.Fprintf(&b, "\n%s\n", p.alarm("Problems:"))
		for _, t := range s.Trouble {
			fmt.Fprintf(&b, "  %s: %s\n    %s\n", plainText(t.On), plainText(t.What), p.faint("do: "+plainText(t.Do)))
		}
		if s.MoreTrouble > 0 {
			fmt.Fprintf(&b, "  and %d more\n", s.MoreTrouble)
		}
	}
	return b.String()
}

func (m *Model) deviceCountText() string {
	text := itoa(m.Devices)
	if m.Broken > 0 {
		text += fmt.Sprintf(", %d broken", m.Broken)
	}
	if m.Changing > 0 {
		text += fmt.Sprintf(", %d changing mode", m.Changing)
	}
	if m.Cordoned > 0 {
		text += fmt.Sprintf(", %d cordoned", m.Cordoned)
	}
	return text
}

// DevicesText writes devices for people; wide adds identity, place and links.
func DevicesText(list []NodeDevices, p Paint, wide bool) string {
	var b strings.Builder
	for i, n := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.bold(plainText(n.Node)))
		if n.Unusable != "" {
			b.WriteString(" " + p.alarm(plainText("takes no pods with devices: "+n.Unusable)))
		}
		b.WriteByte('\n')
		for k := range n.Devices {
			n.Devices[k].writeText(&b, p, wide)
		}
	}
	if len(list) == 0 {
		b.WriteString("No node publishes devices.\n")
	}
	return b.String()
}

func (d *Device) writeText(b *strings.Builder, p Paint, wide bool) {
	fmt.Fprintf(b, "  %2d %s %s  %s  %s", d.Index, drawBar(d), d.promisedText(), plainText(d.Mode), plainText(d.Model))
	if d.NUMA >= 0 {
		fmt.Fprintf(b, "  numa %d", d.NUMA)
	}
	if d.Health != "ok" {
		b.WriteString("  " + p.alarm(plainText(d.Health)))
	}
	b.WriteByte('\n')
	if wide {
		fmt.Fprintf(b, "     %s\n", plainText(strings.Join(slices.DeleteFunc([]string{d.ID, d.PCI, d.virtualText(), strings.Join(d.Links, " ")}, func(s string) bool { return s == "" }), "  ")))
	}
	for i, s := range d.Sharers {
		fmt.Fprintf(b, "     %s %s\n", shareLetter(i), p.faint(plainText(s.describeShare())))
	}
}

// virtualText says that a device is virtual, and how it is with its licence.
func (d *Device) virtualText() string {
	switch {
	case !d.Virtual:
		return ""
	case d.Licence == "":
		return "vGPU"
	}
	return "vGPU (licence " + d.Licence + ")"
}

// promisedText is what of the device is promised, for people.
func (d *Device) promisedText() string {
	return fmt.Sprintf("%s of %s, %d of %d%%", memoryText(d.MemoryPromised), memoryText(d.Memory), d.CoresPromised, d.Cores)
}

func (s *Sharer) describeShare() string {
	text := fmt.Sprintf("%s:%s %s", s.Pod, s.Container, memoryText(s.Memory))
	if s.Cores > 0 {
		text += fmt.Sprintf(", %d%%", s.Cores)
	}
	if s.Whole {
		text += ", whole device"
	}
	if s.Profile != "" {
		text += ", " + s.Profile
	}
	return text
}

// PodsText writes who has what where for people.
func PodsText(list []Holding, p Paint, wide bool) string {
	if len(list) == 0 {
		return "No pod holds devices.\n"
	}
	t := table{}
	head := []string{"NAMESPACE", "POD", "CONTAINER", "NODE", "DEVICE", "MEMORY", "COMPUTE"}
	if wide {
		head = append(head, "MODE", "PARTITION")
	}
	t.addRow(head...)
	for _, h := range list {
		cores := "-"
		if h.Cores > 0 {
			cores = fmt.Sprintf("%d%%", h.Cores)
		}
		row := []string{h.Namespace, h.Pod, h.Container, h.Node, itoa(h.Device), memoryText(h.Memory), cores}
		if wide {
			row = append(row, h.Mode, orDash(h.Profile))
		}
		t.addRow(row...)
	}
	var b strings.Builder
	t.writeRows(&b, p)
	return b.String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// QueuesText writes queues for people.
func QueuesText(list []Queue, p Paint) string {
	if len(list) == 0 {
		return "There are no queues.\n"
	}
	t := table{}
	t.addRow("QUEUE", "STATE", "RESOURCE", "QUOTA", "USED", "DESERVED")
	for _, q := range list {
		t.addRow(q.Queue, orDash(q.State), q.Resource, orDash(q.Shown.Quota), q.Shown.Used, orDash(q.Shown.Deserved))
	}
	var b strings.Builder
	t.writeRows(&b, p)
	return b.String()
}

// Text writes the answer for people.
func (w *Why) Text(p Paint) string {
	var b strings.Builder
	b.WriteString(p.bold(plainText(w.Answer)) + "\n")
	for _, note := range w.Notes {
		fmt.Fprintf(&b, "Besides, %s.\n", plainText(note))
	}
	if w.Plan != "" {
		fmt.Fprintf(&b, "Who could move for it: %s\n", plainText(w.Plan))
	}
	return b.String()
}
