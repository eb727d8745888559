// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing"
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
		fmt.Fprintf(b, "     %s\n", plainText(strings.Join(slices.DeleteFunc([]string{d.ID, d.PCI, strings.Join(d.Links, " ")}, func(s string) bool { return s == "" }), "  ")))
	}
	for i, s := range d.Sharers {
		fmt.Fprintf(b, "     %s %s\n", shareLetter(i), p.faint(plainText(s.describeShare())))
	}
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

// Text writes the answer for people; wide adds every node and card.
func (w *Why) Text(p Paint, wide bool) string {
	var b strings.Builder
	b.WriteString(p.bold(plainText(w.Answer)) + "\n")
	if w.Scheduler != "" {
		fmt.Fprintf(&b, "\nThe scheduler says: %s\n", plainText(w.Scheduler))
	}
	if len(w.Helps) > 0 {
		b.WriteString("\nWhat would help:\n")
		for _, h := range w.Helps {
			fmt.Fprintf(&b, "  %s\n", plainText(h))
		}
	}
	if len(w.Nodes) == 0 {
		return b.String()
	}
	b.WriteString("\nNodes:\n")
	for i, v := range w.Nodes {
		if i == mostVerdicts && !wide {
			fmt.Fprintf(&b, "  and %d more (-o wide)\n", len(w.Nodes)-i)
			break
		}
		v.writeText(&b)
	}
	return b.String()
}

func (v *Verdict) writeText(b *strings.Builder) {
	if v.Fits {
		fmt.Fprintf(b, "  %s: fits\n", plainText(v.Node))
		return
	}
	fmt.Fprintf(b, "  %s: %s\n", plainText(v.Node), plainText(v.Reason))
	for _, same := range v.groupByReason() {
		d := same[0]
		fmt.Fprintf(b, "    %s (%s): %s\n", devicesText(same), plainText(d.Mode), plainText(d.Text))
		if d.Reason != sharing.Fits.String() {
			fmt.Fprintf(b, "      what helps: %s\n", plainText(d.Help))
		}
	}
}

// groupByReason groups the devices that say the same.
func (v *Verdict) groupByReason() [][]DeviceVerdict {
	var groups [][]DeviceVerdict
	for _, d := range v.Devices {
		i := slices.IndexFunc(groups, func(g []DeviceVerdict) bool { return g[0].Text == d.Text && g[0].Mode == d.Mode })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], d)
	}
	return groups
}

// devicesText is "device 0" or "devices 0, 1".
func devicesText(list []DeviceVerdict) string {
	text := "device"
	if len(list) > 1 {
		text = "devices"
	}
	for i, d := range list {
		if i > 0 {
			text += ","
		}
		text += " " + itoa(d.Index)
	}
	return text
}
