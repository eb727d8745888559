// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/sharingtest"
)

// Pods that wait together: whoever moves for them has a place that is free while all are there, and
// all that wait fit in the end.
func TestPlansOfMovesForPodsThatWaitTogether(t *testing.T) {
	n := clusters(t)
	if n > 1000 {
		n /= 5
	}
	plans, moves := 0, 0
	for seed := range n {
		d := dice{rand.New(rand.NewPCG(uint64(seed), 31))}
		c := d.moving()
		w, wish := c.world()
		wishes := []*plan.Wish{wish, wish}
		if d.IntN(3) == 0 {
			other := *wish
			other.Request = sharingtest.Pod("other", d.part("c"))
			wishes[1] = &other
		}
		if d.IntN(3) == 0 {
			wishes = append(wishes, wishes[1])
		}
		p, no := plan.FindTogether(w, wishes)
		if no != nil {
			continue
		}
		plans++
		moves += len(p.Moves)
		c.carryOut(t, seed, wishes, &p)
	}
	t.Logf("%d clusters, %d plans, %d moves", n, plans, moves)
	if plans < n/20 || moves == 0 {
		t.Errorf("%d plans, %d moves of %d: the test shows little", plans, moves, n)
	}
}

// carryOut has the pods of a plan come back before any of them leaves, and then those that
// wait get their places.
func (c *moving) carryOut(t *testing.T, seed int, wishes []*plan.Wish, p *plan.Plan) {
	t.Helper()
	m := c.maskOf(p.Evict)
	if !c.mayMove(m) || len(p.Moves) != len(p.Evict) || bits.OnesCount64(uint64(m)) != len(p.Evict) {
		t.Fatalf("seed %d: %d leave, %d come back, may move %v\n%s", seed, len(p.Evict), len(p.Moves), c.mayMove(m), c)
	}
	ledgers, free := make([]*sharing.Ledger, len(c.nodes)), make([]int64, len(c.nodes))
	for n := range c.nodes {
		ledgers[n], free[n] = c.nodes[n].ledger.Fork(), c.nodes[n].cpu
	}
	for i := range p.Moves {
		move := &p.Moves[i]
		pod := &c.pods[bits.TrailingZeros64(uint64(c.maskOf([]*plan.Victim{move.Pod})))]
		if free[move.To.Node] -= pod.cpu; pod.cpu > 0 && free[move.To.Node] < 0 {
			t.Fatalf("seed %d: no CPU for %s\n%s", seed, pod.owner, c)
		}
		if err := ledgers[move.To.Node].Reserve(pod.owner+" again", move.To.Placement); err != nil {
			t.Fatalf("seed %d: %s does not fit where it moves: %v\n%s", seed, pod.owner, err, c)
		}
	}
	for _, v := range p.Evict {
		pod := &c.pods[bits.TrailingZeros64(uint64(c.maskOf([]*plan.Victim{v})))]
		ledgers[pod.node].Release(pod.owner)
		free[pod.node] += pod.cpu
	}
	for _, i := range p.Order {
		at := p.Places[i]
		if c.nodes[at.Node].excluded {
			t.Fatalf("seed %d: an excluded node", seed)
		}
		free[at.Node] -= wishes[i].Takes[0]
		if err := ledgers[at.Node].Reserve(sharing.Owner(rune('A'+i)), at.Placement); err != nil || wishes[i].Takes[0] > 0 && free[at.Node] < 0 {
			t.Fatalf("seed %d: pod %d does not fit n%d in the end: %v, CPU %d\n%s", seed, i, at.Node, err, free[at.Node], c)
		}
	}
}

// A pod that moves comes back to its queue: what the queue lacks stays lacking.
func TestMovesFreeNothingOfAQueue(t *testing.T) {
	device := func(name string) *sharing.Ledger {
		inv := sharingtest.Node(name)
		inv.Devices = append(inv.Devices, sharingtest.Device(0, "A30", sharing.HAMiCore))
		return sharing.NewLedger(inv, factory.New())
	}
	asks := func(owner string, gib int64) *plan.Wish {
		return &plan.Wish{Request: sharingtest.Pod(owner, sharingtest.Ask("c", gib*1024, 0)), Backends: factory.New(), Policy: binpack(), Takes: []int64{0}, Level: 15}
	}
	ledger, kind := device("n0"), asks("a", 8)
	first, no := plan.Find(&plan.World{Nodes: []*plan.Node{plan.NewNode("n0", ledger.Views(), []int64{0}, []int64{0}, nil)}}, kind)
	if no != nil {
		t.Fatal(no)
	}
	if err := ledger.Reserve("a", first.Places[0].Placement); err != nil {
		t.Fatal(err)
	}
	mover := &plan.Victim{Owner: "a", Takes: []int64{0}, Frees: []int64{1}, Elsewhere: kind}
	w := &plan.World{Lacks: []int64{1}, Nodes: []*plan.Node{
		plan.NewNode("n0", ledger.Views(), []int64{0}, []int64{0}, []*plan.Victim{mover}),
		plan.NewNode("n1", device("n1").Views(), []int64{0}, []int64{0}, nil),
	}}
	if p, no := plan.FindTogether(w, []*plan.Wish{asks("wish", 4)}); no == nil {
		t.Errorf("%d pods move because the queue lacks something", len(p.Moves))
	}
}
