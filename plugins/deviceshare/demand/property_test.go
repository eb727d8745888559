// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

// cases is how many random questions are asked; DEVICESHARE_CASES asks for more.
func cases(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("DEVICESHARE_CASES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if testing.Short() {
		return 300
	}
	return 10_000
}

// TestTheNodesAskedForSufficeAndOneLessDoesNot has pods of one size wait for nodes of one type, of
// which autoscalers look at none, and places them on as many nodes as were asked for, one after the
// other on the first that takes it.
func TestTheNodesAskedForSufficeAndOneLessDoesNot(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	several, unserved := 0, 0
	for i := range cases(t) {
		inv := randomCards(random)
		kind := typeOf(t, "kind", inv)
		waiting := pods(t, 1+random.IntN(40), 1+random.Int64N(int64(len(inv.Devices))+1), random.Int64N(90*gib), random.Int64N(101), unseen)
		a := Decide(question(waiting, []NodeType{kind}))
		n := len(a.Wishes)
		if served := len(a.Served); served != 0 && served != len(waiting) {
			t.Fatalf("seed %d, case %d: %d of %d equal pods are served", seed, i, served, len(waiting))
		}
		if len(a.Served) == 0 {
			if left := placeAll(inv, waiting, 1); n != 0 || left != len(waiting) {
				t.Fatalf("seed %d, case %d: %d nodes are asked for and no pod is served, of which a node takes %d", seed, i, n, len(waiting)-left)
			}
			unserved++
			continue
		}
		if left := placeAll(inv, waiting, n); left != 0 {
			t.Fatalf("seed %d, case %d: on the %d nodes asked for, %d of %d pods have no place", seed, i, n, left, len(waiting))
		}
		if left := placeAll(inv, waiting, n-1); left == 0 {
			t.Fatalf("seed %d, case %d: %d nodes are asked for, %d would do", seed, i, n, n-1)
		}
		if want := nodesByDivision(&inv, &waiting[0].Request, len(waiting)); want >= 0 && n != want {
			t.Fatalf("seed %d, case %d: %d nodes are asked for, %d are needed", seed, i, n, want)
		}
		if n > 1 {
			several++
		}
	}
	if several == 0 || unserved == 0 {
		t.Errorf("seed %d: %d cases of several nodes, %d that no node serves", seed, several, unserved)
	}
}

// randomCards is the inventory of a node.
func randomCards(random *rand.Rand) sharing.Inventory {
	inv := cards("n", 1+random.IntN(8))
	memory, slots := sharing.MiBs(1+random.Int64N(80*gib)), 1+random.IntN(10)
	for i := range inv.Devices {
		inv.Devices[i].Memory, inv.Devices[i].MaxShares = memory, slots
	}
	return inv
}

// placeAll is how many pods have no place on so many nodes.
func placeAll(inv sharing.Inventory, waiting []Waiting, nodes int) int {
	var ledgers []*sharing.Ledger
	for range nodes {
		ledgers = append(ledgers, sharing.NewLedger(&inv, waiting[0].Backends))
	}
	left := 0
	for i := range waiting {
		p, placed := &waiting[i], false
		for _, l := range ledgers {
			placement, refusals := place.Place(l.Views(), &p.Request, p.Backends, p.Policy)
			if placed = !refusals.Refused(); placed {
				l.Record(p.Request.Owner, placement)
				break
			}
		}
		if !placed {
			left++
		}
	}
	return left
}

// nodesByDivision is how many nodes pods of one device each need, by arithmetic alone: as many fit
// a device as its memory, its compute and its slots allow. -1 for other pods.
func nodesByDivision(inv *sharing.Inventory, r *sharing.PodRequest, pods int) int {
	d, ask := &inv.Devices[0], &r.Requests[0]
	if ask.Count != 1 || len(inv.Devices) == 0 {
		return -1
	}
	fit := d.MaxShares
	if m := ask.Memory.On(d.Memory); m > 0 {
		fit = min(fit, int(d.Memory/m))
	}
	if ask.Cores > 0 {
		fit = min(fit, int(d.Cores/ask.Cores))
	}
	perNode := fit * len(inv.Devices)
	return (pods + perNode - 1) / perNode
}

// TestWhateverWaitsTheAnswerIsOneThatHelps asks about mixtures: the new nodes take all that is
// served, whoever is there already, and the same question has the same answer.
func TestWhateverWaitsTheAnswerIsOneThatHelps(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range cases(t) / 10 {
		var kinds []NodeType
		for k := range 1 + random.IntN(3) {
			kinds = append(kinds, typeOf(t, fmt.Sprint("kind", k), randomCards(random)))
		}
		var waiting []Waiting
		for k := range random.IntN(30) {
			waiting = append(waiting, pod(t, fmt.Sprint("p", k), 1+random.Int64N(8), random.Int64N(60*gib), random.Int64N(101), unseen))
		}
		q := question(waiting, kinds)
		a := Decide(q)
		f := packPods(podsOf(waiting), kinds, nil, q.Backends, q.Settings)
		held := 0
		for _, h := range f.hosts {
			if len(h.pods) == 0 {
				t.Fatalf("seed %d, case %d: a node of type %s is asked for without need", seed, i, h.of.Name)
			}
			if err := h.ledger.Check(); err != nil {
				t.Fatalf("seed %d, case %d: %v", seed, i, err)
			}
			held += len(h.pods)
		}
		if held != len(a.Served) || len(a.Wishes) != len(f.hosts) {
			t.Fatalf("seed %d, case %d: %d of %d served pods are on %d nodes, %d are asked for", seed, i, held, len(a.Served), len(f.hosts), len(a.Wishes))
		}
		random.Shuffle(len(waiting), func(x, y int) { waiting[x], waiting[y] = waiting[y], waiting[x] })
		if again := Decide(question(waiting, kinds)); fmt.Sprint(count(again)) != fmt.Sprint(count(a)) {
			t.Fatalf("seed %d, case %d: asked in another order, %v instead of %v", seed, i, count(again), count(a))
		}
	}
}

func podsOf(waiting []Waiting) []Pod {
	var all []Pod
	for i := range waiting {
		all = append(all, waiting[i].Pod)
	}
	return all
}
