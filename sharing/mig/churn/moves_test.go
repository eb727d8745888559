// SPDX-License-Identifier: Apache-2.0

package churn_test

import (
	"fmt"
	"strconv"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/sharingtest"
)

// arrivalsPerMove is after how many arrivals one partition may move. What is not used is saved, up
// to mostSaved moves.
const (
	arrivalsPerMove = 20
	mostSaved       = 100
)

// moves is a ledger that has a partition move where a request does not fit.
type moves struct {
	*ledger
	kinds map[sharing.Owner]int
	// arrived counts requests towards the next move, saved are moves that may be made.
	arrived, saved, made int
}

func newMoves(tb testing.TB, devices int) *moves {
	cut := func(d sharing.Device) sharing.Device { return sharingtest.BestFit(sharingtest.Free(d)) }
	return &moves{ledger: node(tb, devices, cut), kinds: map[sharing.Owner]int{}}
}

func (m *moves) take(owner, kind int) bool {
	m.tb.Helper()
	if m.arrived++; m.arrived == arrivalsPerMove {
		m.arrived, m.saved = 0, min(m.saved+1, mostSaved)
	}
	if !m.ledger.take(owner, kind) && !m.takeByMoving(owner, kind) {
		return false
	}
	m.kinds[id(owner)] = kind
	return true
}

func (m *moves) leave(owner, kind int) {
	delete(m.kinds, id(owner))
	m.ledger.leave(owner, kind)
}

// takeByMoving has the plan of the scheduler carried out, each device being a node.
func (m *moves) takeByMoving(owner, kind int) bool {
	m.tb.Helper()
	if m.saved == 0 {
		return false
	}
	var elsewhere [4]*plan.Wish
	for k := range elsewhere {
		elsewhere[k] = &plan.Wish{Request: m.pods[k], Backends: m.backends, Policy: m.policy}
	}
	views := m.ledger.ledger.Views()
	w := &plan.World{MostMoves: min(m.saved, 3)}
	for d := range views {
		var victims []*plan.Victim
		for _, h := range views[d].Held() {
			victims = append(victims, &plan.Victim{Owner: h.Owner, Elsewhere: elsewhere[m.kinds[h.Owner]]})
		}
		w.Nodes = append(w.Nodes, plan.NewNode(strconv.Itoa(d), views[d:d+1], nil, nil, victims))
	}
	found, no := plan.Find(w, &plan.Wish{Request: m.pods[kind], Backends: m.backends, Policy: m.policy, Level: plan.Levels})
	if no != nil {
		return false
	}
	for i := range found.Moves {
		m.ledger.ledger.Release(found.Moves[i].Pod.Owner)
	}
	for i := range found.Moves {
		m.reserve(found.Moves[i].Pod.Owner, &found.Moves[i].To.Placement)
	}
	m.reserve(id(owner), &found.Places[0].Placement)
	m.saved -= len(found.Moves)
	m.made += len(found.Moves)
	return true
}

func (m *moves) reserve(owner sharing.Owner, p *sharing.Placement) {
	m.tb.Helper()
	if err := m.ledger.ledger.Reserve(owner, *p); err != nil {
		m.tb.Fatal(err)
	}
}

// A move for each twentieth arrival gives more than none, and no more than moving everything.
func TestMovesGiveMorePartitions(t *testing.T) {
	const devices, warm, length = 30, 2, 4
	for _, m := range mixes {
		mover := newMoves(t, devices)
		with := churn(mover, devices, m, 1, warm, length, 1)
		without := run(t, columns()[4], devices, m, 1, warm, length, 1)
		bound := churn(&moving{devices: devices}, devices, m, 1, warm, length, 1)
		asked := 0
		for _, n := range with.asked {
			asked += n
		}
		if with.slices() <= without.slices() || with.slices() > bound.slices() || mover.made == 0 || mover.made > 2*asked/arrivalsPerMove {
			t.Errorf("%v: %.2f %% with %d moves in %d arrivals, %.2f %% without, %.2f %% if all could move", m, with.slices(), mover.made, asked, without.slices(), bound.slices())
		}
	}
}

// BenchmarkChurnMoves prints what moves add: docs/benchmarks.md.
func BenchmarkChurnMoves(b *testing.B) {
	for range b.N {
		fmt.Printf("\n%-5s %-19s %9s %9s %9s %12s\n", "load", "1g 2g 3g 7g", "without", "moves", "bound", "per arrival")
		for _, m := range mixes {
			for _, load := range []float64{1.0, 1.02, 1.2} {
				var with, without, bound counts
				made, asked := 0, 0
				for seed := range uint64(5) {
					mover := newMoves(b, 100)
					n := churn(mover, 100, m, load, 5, 20, seed+1)
					with.add(n)
					made += mover.made
					without.add(churn(columns()[4].make(b, 100), 100, m, load, 5, 20, seed+1))
					bound.add(churn(&moving{devices: 100}, 100, m, load, 5, 20, seed+1))
					for _, k := range n.asked {
						asked += k
					}
				}
				fmt.Printf("%-5.2f %-19s %9.1f %9.1f %9.1f %12.3f\n", load, m, without.slices(), with.slices(), bound.slices(), float64(made)/float64(asked)*20/25)
			}
		}
	}
}
