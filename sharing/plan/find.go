// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

const (
	// mostSteps bounds how many questions are asked about one node, and mostStepsInAll how many for
	// one wish. A question takes some microseconds.
	mostSteps      = 4_000
	mostStepsInAll = 10_000
)

// Find returns the cheapest plan and nil, or why there is none.
//
// Nodes are searched in the order of what a plan costs there at least, until that is more than the
// best plan costs.
func Find(w *World, wish *Wish) (Plan, *No) {
	var best Plan
	found, left, to := false, mostStepsInAll, newTargets(w)
	open := unsure{any: !wish.isJudgedExactly()}
	for _, c := range listCandidates(w, wish) {
		if found && c.least.Compare(best.Cost) >= 0 {
			break
		}
		if left <= 0 {
			open.noteLeast(c.least)
			continue
		}
		q := newQuestion(w.Nodes[c.node], []*Wish{wish}, nil, to.siteOutside())
		a := q.findWithin(&left, best.Cost, found)
		if !a.exact || to.hasGivenUp() {
			open.noteLeast(c.least)
		}
		if a.set == nil {
			continue
		}
		best, found = q.planFor(c.node, a), true
	}
	if !found {
		return Plan{}, explainNo(w, wish, !open.any)
	}
	best.Proven = !open.any || best.Cost.Compare(open.least) <= 0
	return best, nil
}

// planFor returns the plan that an answer about the n-th node is.
func (q *question) planFor(n int, a answer) Plan {
	p := Plan{Cost: a.cost}
	p.Evict, _, _ = q.listLeaving(a.set)
	placements, _ := q.placeWithout(a.set)
	p.Moves, _ = q.siteWith(a.set).findPlaces(p.Evict)
	for i := range placements {
		p.Places, p.Order = append(p.Places, Place{Node: n, Placement: placements[i]}), append(p.Order, i)
	}
	return p
}

// unsure is whether nodes were not searched to the end, and what a plan on them costs at least.
type unsure struct {
	any   bool
	least Cost
}

func (u *unsure) noteLeast(least Cost) {
	if !u.any || least.Compare(u.least) < 0 {
		u.any, u.least = true, least
	}
}

// candidate is a node that may have room, and what a plan costs there at least.
type candidate struct {
	node  int
	least Cost
}

// listCandidates returns the nodes that may have room, the cheapest first.
func listCandidates(w *World, wish *Wish) (all []candidate) {
	var one sharing.PodRequest
	if wish.hasOneRequest() {
		one = wish.forOneDevice()
	}
	for i, n := range w.Nodes {
		if wish.excludesNode(i) {
			continue
		}
		if least, possible := n.leastCost(wish, &one); possible {
			all = append(all, candidate{node: i, least: least})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return a.least.Compare(b.least) })
	return all
}

// leastCost returns what a plan costs on a node at least. It returns false if there is certainly
// none. One is the request for one device of a wish with one request.
func (n *Node) leastCost(wish *Wish, one *sharing.PodRequest) (least Cost, possible bool) {
	var room [8]int64
	free := append(room[:0], n.free...)
	var cheapest *Victim
	grace := int32(math.MaxInt32)
	for _, v := range n.victims {
		if !wish.mayEvict(v) {
			continue
		}
		if cheapest == nil || v.price.Compare(cheapest.price) < 0 {
			cheapest = v
		}
		grace = min(grace, v.price.Grace)
		for r := range wish.Takes {
			free[r] += v.Takes[r]
		}
	}
	short := false
	for r, want := range wish.Takes {
		if want > 0 && free[r] < want {
			return Cost{}, false
		}
		short = short || want > 0 && n.free[r] < want
	}
	if wish.hasOneRequest() {
		if least, possible = n.leastForDevices(wish, one); !possible {
			return Cost{}, false
		}
	}
	if short && least == (Cost{}) {
		least = withoutGrace(cheapest.price)
	}
	if least != (Cost{}) {
		least.Grace = grace // each plan has a pod
	}
	return least, true
}

// leastForDevices returns what it costs at least to clear the devices that a pod with one request
// asks for. One is the request for one of them.
func (n *Node) leastForDevices(wish *Wish, one *sharing.PodRequest) (least Cost, possible bool) {
	var room [8]Cost
	costs := room[:0]
	for d := range n.views {
		if c, possible := n.leastForDevice(d, one, wish); possible {
			costs = append(costs, c)
		}
	}
	wanted := wish.Request.Requests[0].Count
	if len(costs) < wanted {
		return Cost{}, false
	}
	slices.SortFunc(costs, Cost.Compare)
	for i := range costs[:wanted] {
		least = least.plus(costs[i])
	}
	return least, true
}

// leastForDevice returns what it costs at least to clear one device for a request. A pod with
// several devices counts for none of them.
func (n *Node) leastForDevice(d int, one *sharing.PodRequest, wish *Wish) (least Cost, possible bool) {
	if _, refused := place.Place(n.views[d:d+1], one, wish.Backends, wish.Policy); !refused.Refused() {
		return Cost{}, true
	}
	may := 0
	for _, i := range n.holders[d] {
		if wish.mayEvict(n.victims[i]) {
			may++
		}
	}
	fewest := n.fewestOn(d, &one.Requests[0])
	if may < fewest {
		return Cost{}, false
	}
	for _, i := range n.holders[d] {
		if fewest > 0 && len(n.devices[i]) > 1 && wish.mayEvict(n.victims[i]) {
			fewest--
		}
	}
	for _, i := range n.holders[d] { // the cheapest first
		if fewest > 0 && len(n.devices[i]) == 1 && wish.mayEvict(n.victims[i]) {
			least = least.plus(withoutGrace(n.victims[i].price))
			fewest--
		}
	}
	return least, true
}

// fewestOn returns how many pods have to leave a device at least before it can serve a request that
// it cannot serve now.
func (n *Node) fewestOn(d int, req *sharing.Request) int {
	v := &n.views[d]
	switch {
	case req.Memory.Whole() || req.Exclusive() && !v.Partitioned():
		return n.owners[d]
	case v.Partitioned():
		return 1
	}
	var room, more [16]int64
	memory, cores := room[:0], more[:0]
	held := v.Held()
	for i := range held {
		m, c := int64(max(0, held[i].Share.Memory)), int64(max(0, held[i].Share.Cores))
		if i > 0 && held[i].Owner == held[i-1].Owner {
			memory[len(memory)-1] += m
			cores[len(cores)-1] += c
			continue
		}
		memory, cores = append(memory, m), append(cores, c)
	}
	return max(1, fewestOf(memory, int64(req.Memory.On(v.Device.Memory)-v.FreeMemory())), fewestOf(cores, int64(req.Cores-v.FreeCores())))
}

// fewestOf returns how many of some amounts come to a sum at least.
func fewestOf(amounts []int64, sum int64) (n int) {
	slices.Sort(amounts)
	for ; n < len(amounts) && sum > 0; n++ {
		sum -= amounts[len(amounts)-1-n]
	}
	return n
}

// withoutGrace returns a cost that adds up.
func withoutGrace(c Cost) Cost {
	c.Grace = 0
	return c
}
