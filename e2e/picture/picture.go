// SPDX-License-Identifier: Apache-2.0

// Package picture draws the devices of a node as text: a strip for each device, a letter for
// each share. It uses only what the API server says, as any user could.
package picture

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"deviceshare/sharing"
)

// Width is how many cells a strip has.
const Width = 40

// letters name the shares of one picture; after them come '+' signs.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// Pod is a pod with what it holds.
type Pod struct {
	Owner     sharing.Owner
	Name      string
	Placement sharing.Placement
}

// Node draws the devices of one node with the shares of the pods on it.
func Node(inv sharing.Inventory, pods []Pod) string {
	ledger := sharing.NewLedger(&inv, nil)
	names := map[sharing.Owner]string{}
	for _, p := range pods {
		if p.Placement.Node == inv.Node {
			ledger.Record(p.Owner, p.Placement)
			names[p.Owner] = p.Name
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "node %s\n", inv.Node)
	next := 0
	for _, v := range ledger.Views() {
		next = device(&b, &v, names, next)
	}
	return b.String()
}

// device draws one device and returns the number of the next free letter.
func device(b *strings.Builder, v *sharing.View, names map[sharing.Owner]string, next int) int {
	d := v.Device
	health := ""
	if !d.Healthy {
		health = "  UNHEALTHY"
	}
	held := slices.Clone(v.Held())
	fmt.Fprintf(b, "  GPU %d  %s  %s%s\n", d.Index, d.Model, d.Mode, health)
	drawn := strip(held, d.Memory, next)
	if n := sliced(d); n > 0 {
		drawn = slots(held, n, next)
	}
	fmt.Fprintf(b, "  [%s]  %s of %s, %s, %s\n",
		drawn, gib(v.UsedMemory()), gib(d.Memory), count(v.Sharers()), compute(v))
	for i, h := range held {
		fmt.Fprintf(b, "     %c  %-28s %10s  %s\n", letter(next+i), names[h.Owner]+"/"+h.Container, gib(h.Share.Memory), how(&h))
	}
	return next + len(held)
}

// compute says how much of the device's compute was promised.
func compute(v *sharing.View) string {
	for _, h := range v.Held() {
		if h.Share.Whole {
			return "all compute"
		}
	}
	return fmt.Sprintf("%d%% of compute promised", int(v.UsedCores()))
}

func count(shares int) string {
	if shares == 1 {
		return "1 share"
	}
	return fmt.Sprintf("%d shares", shares)
}

// how says what else there is to know of a share.
func how(h *sharing.Held) string {
	words := []string{"no compute limit"}
	switch s := h.Share; {
	case s.Whole:
		words = []string{"whole device, nothing intercepted"}
	case !s.Partition.IsZero():
		words = []string{fmt.Sprintf("%s at slice %d", s.Partition.Profile, s.Partition.Start)}
	case s.Cores > 0:
		words = []string{fmt.Sprintf("%d%% compute", int(s.Cores))}
	}
	if h.Kind != sharing.App {
		words = append(words, h.Kind.String()+" container")
	}
	return strings.Join(words, ", ")
}

// sliced is how many memory slices a device in mode mig is drawn with; 0 for any
// other device.
func sliced(d *sharing.Device) int {
	if d.Mode != sharing.MIG || d.MIG == nil || d.MIG.Slices <= 0 || d.MIG.Slices > Width/2 {
		return 0
	}
	return d.MIG.Slices
}

// slots draws the memory slices of a device side by side. A partition fills the
// slices it covers; a line separates what can be given on its own.
func slots(held []sharing.Held, n, first int) string {
	owner := make([]rune, n)
	for i := range owner {
		owner[i] = '.'
	}
	last := make([]bool, n) // the slice is the last of a partition, or free
	for i := range last {
		last[i] = true
	}
	for i, h := range held {
		p := h.Share.Partition
		for s := max(0, p.Start); s < min(n, p.Start+p.Size); s++ {
			owner[s] = letter(first + i)
			last[s] = s == p.Start+p.Size-1
		}
	}
	var b strings.Builder
	for s, r := range owner {
		end := r
		if last[s] && s < n-1 {
			end = '|'
		}
		b.WriteString(strings.Repeat(string(r), Width/n-1) + string(end))
	}
	return b.String()
}

// strip fills cells in proportion to memory. Every share gets at least one cell,
// so that a small one is seen.
func strip(held []sharing.Held, total sharing.Bytes, first int) string {
	var cells []rune
	for i, h := range held {
		n := max(1, scale(h.Share.Memory, total))
		for range n {
			cells = append(cells, letter(first+i))
		}
	}
	for len(cells) < Width {
		cells = append(cells, '.')
	}
	return string(cells[:Width])
}

// scale is Width*part/total, rounded down, without overflow.
func scale(part, total sharing.Bytes) int {
	if part <= 0 || total <= 0 {
		return 0
	}
	if part >= total {
		return Width
	}
	hi, lo := bits.Mul64(uint64(part), Width)
	n, _ := bits.Div64(hi, lo, uint64(total))
	return int(n)
}

func letter(i int) rune {
	if i < len(letters) {
		return rune(letters[i])
	}
	return '+'
}

// gib prints an amount in GiB with one decimal, a small one in MiB.
func gib(b sharing.Bytes) string {
	if b > 0 && b < sharing.GiB {
		return fmt.Sprintf("%d MiB", b.WholeMiB())
	}
	tenths := int64(b / (sharing.GiB / 10))
	return fmt.Sprintf("%d.%d GiB", tenths/10, tenths%10)
}
