// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"deviceshare/view"
)

// randomNodes are nodes with all that can be: any mode, trouble, shares that are more than there
// is.
func randomNodes(r *rand.Rand, n int) []view.NodeDevices {
	models, modes := []string{"A100", "H100", "T4"}, []string{"hami-core", "mig", "mps", "time-slicing"}
	out := make([]view.NodeDevices, 0, n)
	for i := range n {
		one := view.NodeDevices{Node: fmt.Sprintf("node-%d", i)}
		if r.IntN(6) == 0 {
			one.Unusable = "its device plugin is not running"
		}
		for k := range 1 + r.IntN(8) {
			one.Devices = append(one.Devices, randomDevice(r, k, models[r.IntN(3)], modes[r.IntN(4)]))
		}
		out = append(out, one)
	}
	return out
}

func randomDevice(r *rand.Rand, index int, model, mode string) view.Device {
	d := view.Device{Index: index, Model: model, Mode: mode, Health: "ok", Memory: 40 * gib, Cores: 100}
	if r.IntN(8) == 0 {
		d.Health = "broken: Xid 79"
	}
	if mode == "mig" {
		d.Slices = 8
		for at := r.IntN(3); at < 8; {
			size := min(1+r.IntN(4), 8-at)
			d.Sharers = append(d.Sharers, view.Sharer{Pod: fmt.Sprintf("ns/pod-%d", r.IntN(50)), Container: "main", Start: at, Size: size})
			at += size + r.IntN(3)
		}
		d.MemoryFree = r.Int64N(2) * 5 * gib
		return d
	}
	for range r.IntN(6) {
		s := view.Sharer{Pod: fmt.Sprintf("ns/pod-%d", r.IntN(50)), Container: "main", Memory: r.Int64N(14 * gib)}
		d.Sharers = append(d.Sharers, s)
		d.MemoryPromised += s.Memory
	}
	d.MemoryFree = max(0, d.Memory-d.MemoryPromised)
	return d
}

// The oracle lays each strip out cell by cell.
func TestSegmentsHaveTheirPartOfTheStripAndNoneOfAnothers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	nodes := randomNodes(r, 400)
	cards, _ := view.Cards(nodes, view.Filter{}, 0, len(nodes))
	for i, c := range cards {
		for k, s := range c.Strips {
			d := nodes[i].Devices[k]
			if err := laidOut(&d, &s); err != nil {
				t.Fatalf("%s device %d: %v\n%+v\n%+v", c.Node, k, err, d.Sharers, s.Segments)
			}
		}
	}
}

func laidOut(d *view.Device, s *view.Strip) error {
	if len(s.Segments) != len(d.Sharers) {
		return fmt.Errorf("%d segments for %d shares", len(s.Segments), len(d.Sharers))
	}
	taken := make([]bool, 1000)
	var all, small int64
	for i, g := range s.Segments {
		if g.Start < 0 || g.Width < 1 || g.Start+g.Width > len(taken) {
			return fmt.Errorf("segment %d is outside", i)
		}
		for at := g.Start; at < g.Start+g.Width; at++ {
			if taken[at] {
				return fmt.Errorf("segment %d covers another", i)
			}
			taken[at] = true
		}
		if want := string(rune('a' + i)); g.Letter != want || !strings.Contains(g.Text, d.Sharers[i].Pod) {
			return fmt.Errorf("segment %d is %q %q, want %q of %s", i, g.Letter, g.Text, want, d.Sharers[i].Pod)
		}
		all += d.Sharers[i].Memory
		if d.Sharers[i].Memory < gib {
			small++
		}
	}
	for i, g := range s.Segments {
		want, slack := 1000*float64(d.Sharers[i].Memory)/float64(d.Memory), 2.0
		if d.Slices > 0 {
			want = 1000 / float64(d.Slices) * float64(d.Sharers[i].Size)
			if start := 1000 / float64(d.Slices) * float64(d.Sharers[i].Start); g.Start != int(start) {
				return fmt.Errorf("segment %d begins at %d, want %v", i, g.Start, start)
			}
		} else if all > d.Memory {
			want = 1000 * float64(d.Sharers[i].Memory) / float64(all)
		}
		if d.Sharers[i].Memory < gib || small > 0 { // those too small to be seen are wider, at the others' cost
			slack = 25 + want*0.1
		}
		if d.Slices > 0 {
			slack = 1
		}
		if diff := float64(g.Width) - want; diff > slack || -diff > slack {
			return fmt.Errorf("segment %d is %d wide, want %v", i, g.Width, want)
		}
	}
	return nil
}

func TestAFilterSelectsTheNodesThatAPersonWouldPick(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	nodes := randomNodes(r, 200)
	anyDevice := func(n *view.NodeDevices, is func(view.Device) bool) bool { return slices.ContainsFunc(n.Devices, is) }
	conditions := map[view.Condition]func(*view.NodeDevices) bool{
		view.AnyCondition: func(*view.NodeDevices) bool { return true },
		view.InTrouble: func(n *view.NodeDevices) bool {
			return n.Unusable != "" || anyDevice(n, func(d view.Device) bool { return d.Health != "ok" })
		},
		view.HasRoom: func(n *view.NodeDevices) bool {
			return n.Unusable == "" && anyDevice(n, func(d view.Device) bool { return d.Health == "ok" && d.MemoryFree > 0 })
		},
		view.HasIdle: func(n *view.NodeDevices) bool {
			return n.Unusable == "" && anyDevice(n, func(d view.Device) bool { return d.Health == "ok" && len(d.Sharers) == 0 })
		},
	}
	cards, _ := view.Cards(nodes, view.Filter{}, 0, len(nodes))
	for condition, is := range conditions {
		for _, mode := range []string{"", "mig", "mps"} {
			for _, text := range []string{"", "POD-7 ", "node-1", "t4", "nobody"} {
				group := cards[r.IntN(len(cards))].Group
				if r.IntN(2) == 0 {
					group = ""
				}
				var want []string
				for i := range nodes {
					n := &nodes[i]
					mentions := strings.Contains(strings.ToLower(fmt.Sprint(*n)), strings.ToLower(strings.TrimSpace(text)))
					if mentions && is(n) && (group == "" || cards[i].Group == group) &&
						(mode == "" || anyDevice(n, func(d view.Device) bool { return d.Mode == mode })) {
						want = append(want, n.Node)
					}
				}
				f := view.Filter{Text: text, Mode: mode, Group: group, Condition: condition}
				if got := inPages(t, nodes, f, 7); !slices.Equal(got, want) {
					t.Errorf("%+v: got %v, want %v", f, got, want)
				}
			}
		}
	}
}

// inPages asks for what a filter selects page by page.
func inPages(t *testing.T, nodes []view.NodeDevices, f view.Filter, limit int) []string {
	t.Helper()
	var names []string
	for offset := 0; ; offset += limit {
		cards, total := view.Cards(nodes, f, offset, limit)
		for _, c := range cards {
			names = append(names, c.Node)
		}
		if len(cards) < limit {
			if len(names) != total {
				t.Errorf("%+v: %d nodes in all, %d were sent", f, total, len(names))
			}
			return names
		}
	}
}

func TestAGroupIsNamedByItsModelsTheMostFirst(t *testing.T) {
	n := view.NodeDevices{Node: "n", Devices: []view.Device{{Model: "H100"}, {Model: "A100"}, {Model: "T4"}, {Model: "A100"}}}
	cards, _ := view.Cards([]view.NodeDevices{n}, view.Filter{}, 0, 1)
	if want := "2 × A100, 1 × H100, 1 × T4"; cards[0].Group != want {
		t.Errorf("got %q, want %q", cards[0].Group, want)
	}
}
