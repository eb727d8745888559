// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

// question is whether a wish fits one node when some of its pods are gone. Sets of pods are marks
// by position among the victims of the node.
type question struct {
	*Node
	wish *Wish
	// may are the victims that may be evicted for the wish.
	may []bool
	// gangs are those of the victims that may be evicted.
	gangs []*Gang
	// steps is how many questions a search may still ask, see mostSteps.
	steps *int
	// scratch is room for the views of the devices without some pods.
	scratch []sharing.View
}

// newQuestion readies the question whether a wish fits a node.
func newQuestion(n *Node, wish *Wish, steps *int) *question {
	q := &question{Node: n, wish: wish, may: make([]bool, len(n.victims)), steps: steps}
	for i, v := range n.victims {
		if !wish.mayEvict(v) || isExhausted(v.Budgets) {
			continue
		}
		q.may[i] = true
		if v.Gang != nil && !slices.Contains(q.gangs, v.Gang) {
			q.gangs = append(q.gangs, v.Gang)
		}
	}
	for i, v := range n.victims {
		if v.Gang != nil && q.may[i] && !v.Gang.maySpare(v.Role, 1) && !mayLeaveWhole(v.Gang, wish) {
			q.may[i] = false
		}
	}
	return q
}

func isExhausted(budgets []*Budget) bool {
	return slices.ContainsFunc(budgets, func(b *Budget) bool { return b.Allowed <= 0 })
}

// maySpare reports whether so many pods of one role may leave and the gang goes on.
func (g *Gang) maySpare(role, n int) bool {
	return n <= g.Spare && (role >= len(g.Roles) || n <= g.Roles[role])
}

// mayLeaveWhole reports whether all of a gang may be evicted for a wish.
func mayLeaveWhole(g *Gang, wish *Wish) bool {
	return !g.Stays && !slices.ContainsFunc(g.Members, func(v *Victim) bool { return !wish.mayEvict(v) || isExhausted(v.Budgets) })
}

// fitsWithout reports whether the wish fits the node without these pods.
func (q *question) fitsWithout(gone []bool) bool {
	*q.steps--
	if !q.hasAmounts(gone) {
		return false
	}
	_, fits := q.placeWithout(gone)
	return fits
}

// hasAmounts reports whether all resources but devices are enough.
func (q *question) hasAmounts(gone []bool) bool {
	for r, want := range q.wish.Takes {
		if want <= 0 {
			continue
		}
		free := q.free[r]
		for i, leaves := range gone {
			if free >= want {
				break
			}
			if leaves {
				free += q.victims[i].Takes[r]
			}
		}
		if free < want {
			return false
		}
	}
	return true
}

// placeWithout returns what the wish gets of the devices without these pods, and whether they are
// enough.
func (q *question) placeWithout(gone []bool) (sharing.Placement, bool) {
	if q.wish.Request == nil {
		return sharing.Placement{}, true
	}
	q.scratch = append(q.scratch[:0], q.views...)
	for d := range q.scratch {
		if slices.ContainsFunc(q.holders[d], func(i int) bool { return gone[i] }) {
			q.scratch[d] = q.views[d].WithShares(q.sharesWithout(d, gone))
		}
	}
	placement, refused := place.Place(q.scratch, q.wish.Request, q.wish.Backends, q.wish.Policy)
	return placement, !refused.Refused()
}

// sharesWithout returns the shares on a device that are left without these pods.
func (q *question) sharesWithout(d int, gone []bool) []sharing.Held {
	held := q.views[d].Held()
	left := make([]sharing.Held, 0, len(held))
	for i := range held {
		if !slices.ContainsFunc(q.holders[d], func(j int) bool { return gone[j] && q.victims[j].Owner == held[i].Owner }) {
			left = append(left, held[i])
		}
	}
	return left
}

// listLeaving returns all pods that leave with these: if too few of a gang are left, all of it. It
// returns false if they may not leave.
func (q *question) listLeaving(gone []bool) (all []*Victim, cost Cost, ok bool) {
	for i, leaves := range gone {
		if leaves {
			all = append(all, q.victims[i])
		}
	}
	for _, g := range q.gangs {
		if goesOn(g, all) {
			continue
		}
		if !mayLeaveWhole(g, q.wish) {
			return nil, Cost{}, false
		}
		cost.Gangs++
		for _, v := range g.Members {
			if v.node != q.Node || !gone[v.position] {
				all = append(all, v)
			}
		}
	}
	for _, v := range all {
		cost = cost.plus(v.price)
	}
	return all, cost, keepsBudgets(all)
}

// goesOn reports whether enough of a gang is left when these pods leave.
func goesOn(g *Gang, leaving []*Victim) bool {
	n := 0
	for _, v := range leaving {
		if v.Gang != g {
			continue
		}
		if n++; n > g.Spare || v.Role < len(g.Roles) && countRole(leaving, g, v.Role) > g.Roles[v.Role] {
			return false
		}
	}
	return true
}

func countRole(leaving []*Victim, g *Gang, role int) (n int) {
	for _, v := range leaving {
		if v.Gang == g && v.Role == role {
			n++
		}
	}
	return n
}

// keepsBudgets reports whether these pods may leave together.
func keepsBudgets(leaving []*Victim) bool {
	for i, v := range leaving {
		for _, b := range v.Budgets {
			n := 0
			for _, w := range leaving[:i+1] {
				if slices.Contains(w.Budgets, b) {
					n++
				}
			}
			if n > b.Allowed {
				return false
			}
		}
	}
	return true
}
