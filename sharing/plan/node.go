// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"deviceshare/sharing"
)

// answer is the cheapest set of pods that makes a wish fit one node.
type answer struct {
	set   []bool // nil if there is none
	cost  Cost
	exact bool
}

// findWithin is findCheapest with at most mostSteps of the steps that are left. It takes those that
// it needs, and the first ones in any case.
func (q *question) findWithin(left *int, limit Cost, limited bool) answer {
	most := min(mostSteps, max(*left, 2*len(q.pods)))
	q.steps = most
	a := q.findCheapest(limit, limited)
	*left -= most - q.steps
	return a
}

// findCheapest finds the cheapest set that costs less than a limit. An answer that is not exact may
// be dearer than necessary, or miss one.
func (q *question) findCheapest(limit Cost, limited bool) answer {
	none, all := q.gone, slices.Clone(q.gone)
	for i := range all {
		all[i] = all[i] || q.may[i]
	}
	if q.fitsWithout(none) {
		_, cost, ok := q.listLeaving(none)
		if !ok && q.at != nil {
			return answer{exact: true} // those that leave other nodes were to come here
		}
		return answer{set: none, cost: cost, exact: true}
	}
	if !q.fitsWithout(all) {
		return answer{exact: true}
	}
	c := cover{
		atoms: q.listAtoms(), gone: none, fits: q.fitsWithout, steps: &q.steps, best: limit, bound: limited,
		price: func(gone []bool) (Cost, bool) {
			_, cost, ok := q.listLeaving(gone)
			return cost, ok
		},
		alike: q.areAlike, accepts: q.leavesPlaces,
	}
	if len(q.pods) == 1 && q.wish.hasOneRequest() {
		d := newByDevice(q, c.atoms, limit, limited)
		d.searchBlocks()
		c.best, c.set, c.bound = d.best, d.set, d.bound
		if !d.hasOpen || c.bound && c.best.Compare(d.open) <= 0 {
			return answer{set: c.set, cost: c.best, exact: true}
		}
	}
	exact := c.findBest()
	return answer{set: c.set, cost: c.best, exact: exact}
}

// listAtoms returns what may leave. Pods of a gang that can spare none leave as a whole.
func (q *question) listAtoms() (atoms []atom) {
	whole := map[*Gang]int{}
	for i, v := range q.victims {
		switch {
		case !q.may[i]:
			continue
		case v.Gang == nil || v.Gang.Waits || v.Gang.maySpare(v.Role, 1):
			atoms = append(atoms, atom{pods: []int{i}, cost: v.price})
			continue
		}
		if k, ok := whole[v.Gang]; ok {
			atoms[k].pods = append(atoms[k].pods, i)
			continue
		}
		whole[v.Gang] = len(atoms)
		atoms = append(atoms, atom{pods: []int{i}, cost: wholeCost(v.Gang)})
	}
	return atoms
}

// wholeCost is what it costs when all of a gang leaves.
func wholeCost(g *Gang) Cost {
	c := Cost{Gangs: 1}
	for _, v := range g.Members {
		c = c.plus(v.price)
	}
	return c
}

// areAlike reports whether it is the same whether one of two atoms leaves or the other.
func (q *question) areAlike(a, b *atom) bool {
	if a.cost != b.cost || len(a.pods) != 1 || len(b.pods) != 1 {
		return false
	}
	i, j := a.pods[0], b.pods[0]
	v, w := q.victims[i], q.victims[j]
	if v.Gang != w.Gang || v.Role != w.Role || v.Elsewhere != w.Elsewhere || len(v.Budgets)+len(w.Budgets) > 0 || len(q.devices[i]) != len(q.devices[j]) {
		return false
	}
	if !slices.Equal(v.Givers, w.Givers) || !slices.Equal(v.Gives, w.Gives) {
		return false
	}
	for r := range q.wish.Takes {
		if v.Takes[r] != w.Takes[r] {
			return false
		}
	}
	for k, d := range q.devices[i] {
		if q.devices[j][k] != d || !q.haveAlikeShares(q.views[d].Held(), v.Owner, w.Owner) {
			return false
		}
	}
	return true
}

// haveAlikeShares reports whether two pods certainly have the same of a device. Partitions are
// never alike: their places differ.
func (q *question) haveAlikeShares(held []sharing.Held, a, b sharing.Owner) bool {
	var one, other *sharing.Held
	for i := range held {
		switch held[i].Owner {
		case a:
			if one != nil {
				return false
			}
			one = &held[i]
		case b:
			if other != nil {
				return false
			}
			other = &held[i]
		}
	}
	return one != nil && other != nil && one.Share == other.Share && one.Kind == other.Kind && q.areAlikeNeighbours(one, other)
}

// areAlikeNeighbours reports whether the pods that may come accept two pods alike, and are accepted
// by them alike.
func (q *question) areAlikeNeighbours(one, other *sharing.Held) bool {
	if one.Namespace != other.Namespace || one.Neighbours.Rules() != other.Neighbours.Rules() {
		return false
	}
	return !q.selective || one.Neighbours.HasSameNames(other.Neighbours)
}
