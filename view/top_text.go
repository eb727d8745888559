// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
)

// smallBar is how many cells the bar of one container has.
const smallBar = 12

// TopText writes what is used for people.
func TopText(list []NodeTop, p Paint) string {
	if len(list) == 0 {
		return "No node publishes devices.\n"
	}
	var b strings.Builder
	for i := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		n := &list[i]
		b.WriteString(p.bold(plainText(n.Node)))
		if n.Unread != "" {
			b.WriteString(" " + p.alarm(plainText("does not say what is used: "+n.Unread)))
		}
		b.WriteByte('\n')
		for k := range n.Devices {
			n.Devices[k].writeText(&b, p, n.Unread == "")
		}
	}
	return b.String()
}

func (d *DeviceTop) writeText(b *strings.Builder, p Paint, known bool) {
	used := "?"
	if known {
		used = memoryText(d.MemoryUsed)
	}
	fmt.Fprintf(b, "  %2d %s %s used, %s allocated of %s  %s  %s", d.Index, d.usageBar(), used, memoryText(d.MemoryAllocated), memoryText(d.Memory),
		plainText(d.Mode), plainText(d.Model))
	if d.Strangers > 0 {
		b.WriteString("  " + p.alarm(memoryText(d.Strangers)+" in processes that were given nothing"))
	}
	b.WriteByte('\n')
	if len(d.Containers) == 0 {
		return
	}
	t := table{}
	t.addRow("CONTAINER", "MEMORY", "USED", "ALLOCATED", "LIMIT", "COMPUTE", "ALLOCATED")
	for i := range d.Containers {
		t.addRow(d.Containers[i].tableCells()...)
	}
	var rows strings.Builder
	t.writeRows(&rows, Paint{})
	for line := range strings.Lines(rows.String()) {
		b.WriteString("     " + line)
	}
}

// usageBar draws what is used (#) and what is promised beyond that (=).
func (d *DeviceTop) usageBar() string {
	used := filledCells(d.MemoryUsed+d.Strangers, d.Memory, barWidth)
	promised := max(filledCells(d.MemoryAllocated, d.Memory, barWidth), used)
	return "[" + strings.Repeat("#", used) + strings.Repeat("=", promised-used) + strings.Repeat(".", barWidth-promised) + "]"
}

func (c *ContainerTop) tableCells() []string {
	row := []string{c.Pod + ":" + c.Container, "?", "?", memoryText(c.MemoryAllocated), "?", "-", "-"}
	if c.Known {
		whole := max(c.MemoryLimit, c.MemoryAllocated)
		used := filledCells(c.MemoryUsed, whole, smallBar)
		row[1] = "[" + strings.Repeat("#", used) + strings.Repeat(".", smallBar-used) + "]"
		row[2], row[4] = memoryText(c.MemoryUsed), "-"
		if c.MemoryLimit > 0 {
			row[4] = memoryText(c.MemoryLimit)
		}
	}
	if c.ComputeUsed != nil {
		row[5] = fmt.Sprintf("%.0f%%", *c.ComputeUsed)
	}
	if c.ComputeAllocated > 0 {
		row[6] = fmt.Sprintf("%d%%", c.ComputeAllocated)
	}
	return row
}

// filledCells is how many of so many cells a part of a whole fills. What is there fills one at
// least.
func filledCells(part, whole int64, of int) int {
	if part <= 0 || whole <= 0 {
		return 0
	}
	return max(1, min(of, int(float64(part)/float64(whole)*float64(of))))
}
