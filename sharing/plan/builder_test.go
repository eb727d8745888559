// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/sharingtest"
)

// build makes the world of a scenario.
func (s *scenario) build(t *testing.T) (*plan.World, *plan.Wish) {
	t.Helper()
	b := builder{scenario: s, t: t, budgets: map[string]*plan.Budget{}, gangs: map[string]*plan.Gang{}, givers: map[string]*plan.Giver{}, kinds: map[string]*plan.Wish{}}
	for name, allowed := range s.budgets {
		b.budgets[name] = &plan.Budget{Name: name, Allowed: allowed}
	}
	for name, most := range s.gives {
		b.givers[name] = &plan.Giver{Most: []int64{int64(most)}}
	}
	for name, least := range s.gangs {
		b.gangs[name] = &plan.Gang{Spare: -least, Waits: s.moves}
	}
	w := &plan.World{}
	for i, text := range s.nodes {
		w.Nodes = append(w.Nodes, b.node(fmt.Sprint("n", i+1), text))
	}
	wish := &plan.Wish{Backends: factory.New(), Policy: binpack(), Takes: []int64{int64(s.wish.cpu)}, Level: 15}
	if s.wish.devices > 0 {
		wish.Request = sharingtest.Pod("wish", sharingtest.Times(s.wish.devices, sharingtest.Ask("c", int64(s.wish.gib)*1024, 0)))
		wish.Request.OneNUMA = s.wish.numa
	}
	if s.wish.exclude > 0 {
		wish.Excluded = make([]bool, len(w.Nodes))
		wish.Excluded[s.wish.exclude-1] = true
	}
	return w, wish
}

type builder struct {
	*scenario
	t       *testing.T
	budgets map[string]*plan.Budget
	gangs   map[string]*plan.Gang
	givers  map[string]*plan.Giver
	kinds   map[string]*plan.Wish
}

// node reads the text of a node.
func (b *builder) node(name, text string) *plan.Node {
	inv := sharingtest.Node(name)
	for i, device := range strings.Split(text, "|") {
		mode := sharing.HAMiCore
		if strings.HasPrefix(device, "mig ") {
			mode = sharing.MIG
		}
		d := sharingtest.Device(i, "A30", mode)
		d.NUMA = i / 2
		if mode == sharing.MIG {
			d = sharingtest.Free(d)
		}
		inv.Devices = append(inv.Devices, d)
	}
	ledger := sharing.NewLedger(inv, factory.New())
	order, requests := readPods(inv, text)
	capacity := int64(0)
	var victims []*plan.Victim
	for _, pod := range order {
		if r := requests[pod]; len(r.Requests) > 0 {
			p, refused := place.Place(ledger.Views(), r, factory.New(), binpack())
			if refused.Refused() {
				b.t.Fatalf("pod %s does not fit %s: %v", pod, name, refused.Count)
			}
			if err := ledger.Reserve(r.Owner, p); err != nil {
				b.t.Fatal(err)
			}
		}
		if v := b.victim(pod); v != nil {
			if b.moves {
				v.Elsewhere = b.kindOf(requests[pod], v.Takes)
			}
			victims = append(victims, v)
			capacity += v.Takes[0]
		}
	}
	return plan.NewNode(name, ledger.Views(), []int64{0}, []int64{capacity}, victims)
}

// kindOf is what a pod asks for where it moves.
func (b *builder) kindOf(r *sharing.PodRequest, takes []int64) *plan.Wish {
	elsewhere := *r
	elsewhere.Selector = sharing.Selector{}
	key := fmt.Sprint(elsewhere.Requests, takes)
	if b.kinds[key] == nil {
		b.kinds[key] = &plan.Wish{Request: &elsewhere, Backends: factory.New(), Policy: binpack(), Takes: []int64{0}}
	}
	return b.kinds[key]
}

// readPods reads the pods of a node and what they ask for.
func readPods(inv *sharing.Inventory, text string) (order []string, requests map[string]*sharing.PodRequest) {
	requests = map[string]*sharing.PodRequest{}
	for i, device := range strings.Split(text, "|") {
		for _, word := range strings.Fields(strings.TrimPrefix(device, "mig ")) {
			pod, amount, _ := strings.Cut(strings.Trim(word, "()"), ":")
			r := requests[pod]
			if r == nil {
				r = sharingtest.Pod(pod)
				order, requests[pod] = append(order, pod), r
			}
			gib, _ := strconv.ParseInt(amount, 10, 64)
			switch {
			case strings.HasPrefix(word, "("):
				continue
			case len(r.Requests) == 0:
				r.Requests = []sharing.Request{sharingtest.Ask("c", gib*1024, 0)}
			default:
				r.Requests[0].Count++
			}
			r.Selector.UseIDs = append(r.Selector.UseIDs, inv.Devices[i].ID)
		}
	}
	return order, requests
}

// victim is a pod as the planner sees it, nil if it is protected.
func (b *builder) victim(name string) *plan.Victim {
	s := b.pods[name]
	v := &plan.Victim{Owner: sharing.Owner(name), Level: 1, Takes: []int64{1}, Frees: []int64{1}, Grace: 30, Age: 600}
	if s.priority > 0 {
		v.Level = map[int]int{4: 4, 50: 10, 100: 15}[s.priority]
	}
	if s.cpu > 0 {
		v.Takes[0] = int64(s.cpu)
	}
	if s.age > 0 {
		v.Age = int64(s.age)
	}
	if s.grace > 0 {
		v.Grace = int64(s.grace)
	}
	if s.budget != "" {
		v.Budgets = []*plan.Budget{b.budgets[s.budget]}
	}
	if g := b.givers[s.queue]; g != nil {
		v.Givers, v.Gives, v.Turn = []*plan.Giver{g}, []int64{1}, s.turn
	}
	if g := b.gangs[s.gang]; g != nil {
		g.Spare++
		if g.Stays = g.Stays || s.isProtected; !s.isProtected {
			v.Gang = g
			g.Members = append(g.Members, v)
		}
	}
	if s.isProtected {
		return nil
	}
	return v
}
