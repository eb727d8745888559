// SPDX-License-Identifier: Apache-2.0

package openb_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest/trace"
	"deviceshare/sharing/worth"
)

// podsPerMove is for how many pods that came one may move, and mostTogether how many move for one.
const (
	podsPerMove  = 100
	mostTogether = 8
)

// mover is a cluster in which pods move for one that does not fit.
type mover struct {
	*cluster
	// there are the pods of each node, in their order.
	there   [][]*placed
	kinds   map[string]*plan.Wish
	arrived int
	moved   int
}

// placed is a pod that has a place.
type placed struct {
	owner     sharing.Owner
	needs     worth.Amounts
	elsewhere *plan.Wish
}

func newMover(tb testing.TB, nodes []trace.Node) *mover {
	return &mover{cluster: newCluster(tb, nodes), there: make([][]*placed, len(nodes)), kinds: map[string]*plan.Wish{}}
}

// Take implements trace.Rule.
func (m *mover) Take(p *trace.Pod) bool {
	m.arrived++
	owner := sharing.Owner(fmt.Sprint(m.arrivals.Len()))
	node, placed := m.place(p)
	if !placed {
		return m.takeByMoving(owner, p)
	}
	m.there[node] = append(m.there[node], m.placedOf(owner, p))
	return true
}

// placedOf describes a pod; those that are alike ask for the same.
func (m *mover) placedOf(owner sharing.Owner, p *trace.Pod) *placed {
	return &placed{owner: owner, needs: worth.Amounts{CPU: float64(p.CPU), Memory: float64(p.Memory) * float64(sharing.MiB)}, elsewhere: m.wishOf(p)}
}

func (m *mover) wishOf(p *trace.Pod) *plan.Wish {
	key := fmt.Sprint(p.CPU, p.Memory, p.Devices, p.Share, p.Models)
	if m.kinds[key] == nil {
		m.kinds[key] = &plan.Wish{
			Request: request("", p), Backends: m.backends, Policy: policy.Fragmentation(m.model), Level: plan.Levels,
			Takes: []int64{int64(p.CPU), int64(p.Memory)},
		}
	}
	return m.kinds[key]
}

// world is the cluster as the planner sees it: everybody may move.
func (m *mover) world() *plan.World {
	w := &plan.World{MostMoves: min(mostTogether, m.arrived/podsPerMove-m.moved)}
	for i, n := range m.nodes {
		var victims []*plan.Victim
		for _, pod := range m.there[i] {
			victims = append(victims, &plan.Victim{Owner: pod.owner, Takes: pod.elsewhere.Takes, Elsewhere: pod.elsewhere})
		}
		free := []int64{int64(n.free.CPU), int64(n.free.Memory / float64(sharing.MiB))}
		w.Nodes = append(w.Nodes, plan.NewNode(fmt.Sprint(i), n.ledger.Views(), free, free, victims))
	}
	return w
}

func (m *mover) takeByMoving(owner sharing.Owner, p *trace.Pod) bool {
	if p.Devices == 0 || m.arrived/podsPerMove-m.moved < 1 {
		return false
	}
	w := m.world()
	found, no := plan.Find(w, m.wishOf(p))
	if no != nil {
		return false
	}
	for _, move := range found.Moves {
		for i := range m.there {
			for k, pod := range m.there[i] {
				if pod.owner == move.Pod.Owner {
					m.take(i, k, pod)
					m.put(move.To.Node, pod, &move.To.Placement)
					break
				}
			}
		}
	}
	m.moved += len(found.Moves)
	m.put(found.Places[0].Node, m.placedOf(owner, p), &found.Places[0].Placement)
	return true
}

// take takes the k-th pod from a node.
func (m *mover) take(i, k int, pod *placed) {
	n := m.nodes[i]
	n.ledger.Release(pod.owner)
	n.free.CPU += pod.needs.CPU
	n.free.Memory += pod.needs.Memory
	m.there[i] = append(m.there[i][:k:k], m.there[i][k+1:]...)
	m.forget(i)
}

// put puts a pod on a node.
func (m *mover) put(i int, pod *placed, p *sharing.Placement) {
	n := m.nodes[i]
	if pod.elsewhere.Request != nil {
		if err := n.ledger.Reserve(pod.owner, *p); err != nil {
			m.tb.Fatal(err)
		}
	}
	n.free = n.free.Less(pod.needs)
	if n.free.CPU < 0 || n.free.Memory < 0 {
		m.tb.Fatalf("node %d has no room: %+v", i, n.free)
	}
	m.there[i] = append(m.there[i], pod)
	m.forget(i)
}

func (m *mover) forget(i int) {
	for _, s := range m.scores {
		s[i] = unknown
	}
}

// printMoves prints how much is allocated if a hundredth of the pods moves.
func printMoves(t *testing.T, nodes []trace.Node, w trace.Workload, seeds uint64) {
	t.Helper()
	var got []float64
	moved := 0
	for seed := range seeds {
		order, arrivals := arrivalsOf(nodes, w.Pods, seed)
		m := newMover(t, order)
		got = append(got, run(m, nodes, arrivals))
		moved += m.moved
	}
	mean, sd := trace.Mean(got)
	fmt.Printf("%s fragmentation,moves %.2f %.2f with %d moves\n", w.Name, mean, sd, moved)
}

func TestMovesPlaceMoreOnASmallCluster(t *testing.T) {
	nodes, pods := trace.Small()
	with, without, moved := 0.0, 0.0, 0
	for seed := range uint64(4) {
		order, arrivals := arrivalsOf(nodes, pods, seed)
		m := newMover(t, order)
		with += run(m, nodes, arrivals)
		without += run(newCluster(t, order), nodes, arrivals)
		if moved += m.moved; m.moved > len(arrivals)/podsPerMove {
			t.Errorf("seed %d: %d of %d pods moved", seed, m.moved, len(arrivals))
		}
		for i, n := range m.nodes {
			if err := n.ledger.Check(); err != nil {
				t.Errorf("seed %d, node %d: %v", seed, i, err)
			}
		}
	}
	if with < without || moved == 0 {
		t.Errorf("%.2f %% allocated with %d moves, %.2f %% without", with/4, moved, without/4)
	}
	t.Logf("%.2f %% allocated with %d moves, %.2f %% without", with/4, moved, without/4)
}
