// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Paint colours texts for a terminal; the zero value leaves them as they are.
type Paint struct{ Colour bool }

func (p Paint) applyCode(code, s string) string {
	if !p.Colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p Paint) bold(s string) string  { return p.applyCode("1", s) }
func (p Paint) alarm(s string) string { return p.applyCode("31", s) }
func (p Paint) faint(s string) string { return p.applyCode("2", s) }

// table lines columns up. Texts of others may hold anything: what moves a terminal's cursor or
// colours it is replaced.
type table struct {
	rows [][]string
}

func (t *table) addRow(cells ...string) {
	for i := range cells {
		cells[i] = plainText(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// writeRows writes the rows; the first is the head.
func (t *table) writeRows(b *strings.Builder, p Paint) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+3))
			}
		}
		text := strings.TrimRight(line.String(), " ")
		if n == 0 {
			text = p.bold(text)
		}
		b.WriteString(text + "\n")
	}
}

func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r) {
			return '?'
		}
		return r
	}, s)
}

func memoryText(b int64) string {
	switch {
	case b == 0:
		return "0"
	case b%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", b>>30)
	case b < 1<<30:
		return fmt.Sprintf("%d MiB", b>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30))
}

// letters name the sharers of one device in its bar.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func shareLetter(i int) string {
	if i < len(letters) {
		return letters[i : i+1]
	}
	return "#"
}

// barWidth is how many cells a bar of memory has.
const barWidth = 24

// drawBar draws the memory of a device: each sharer has the cells of its part, at least one.
func drawBar(d *Device) string {
	if d.Slices > 0 {
		return drawSlices(d)
	}
	var b strings.Builder
	for i, s := range d.Sharers {
		cells := 0
		if d.Memory > 0 {
			cells = int(float64(s.Memory) / float64(d.Memory) * barWidth)
		}
		b.WriteString(strings.Repeat(shareLetter(i), max(1, min(cells, barWidth))))
	}
	text := b.String()
	if len(text) > barWidth {
		text = text[:barWidth-1] + "+"
	}
	return "[" + text + strings.Repeat(".", barWidth-len(text)) + "]"
}

// drawSlices draws the memory slices of a device in mode mig: "[aa|bb|.|.|.|.]".
func drawSlices(d *Device) string {
	owner := make([]int, d.Slices)
	for i, s := range d.Sharers {
		for k := max(s.Start, 0); k < min(s.Start+s.Size, d.Slices); k++ {
			owner[k] = i + 1
		}
	}
	var b strings.Builder
	for k, o := range owner {
		if k > 0 && (o == 0 || o != owner[k-1]) {
			b.WriteByte('|')
		}
		if o == 0 {
			b.WriteByte('.')
		} else {
			b.WriteString(shareLetter(o - 1))
		}
	}
	return "[" + b.String() + "]"
}
