// SPDX-License-Identifier: Apache-2.0

package plan

import "slices"

// Giver is a queue whose pods may leave so that another queue gets what it deserves.
type Giver struct {
	// Most is how much of each amount may leave it.
	Most []int64
}

// mayLose reports whether a queue may lose so much.
func (g *Giver) mayLose(amounts []int64) bool {
	for r, n := range amounts {
		if n > 0 && n > g.Most[r] {
			return false
		}
	}
	return true
}

// isKept reports whether a pod may not leave whoever else does: a budget is exhausted, or its
// queues keep it.
func (v *Victim) isKept() bool {
	return isExhausted(v.Budgets) || slices.ContainsFunc(v.Givers, func(g *Giver) bool { return !g.mayLose(v.Gives) })
}

// keepsGivers reports whether queues may lose these pods together.
func keepsGivers(leaving []*Victim) bool {
	var seen []*Giver
	for i, v := range leaving {
		for _, g := range v.Givers {
			if slices.Contains(seen, g) {
				continue
			}
			seen = append(seen, g)
			if !g.mayLose(lostBy(g, leaving[i:])) {
				return false
			}
		}
	}
	return true
}

// lostBy returns what a queue loses when these pods leave.
func lostBy(g *Giver, leaving []*Victim) []int64 {
	lost := make([]int64, len(g.Most))
	for _, v := range leaving {
		if slices.Contains(v.Givers, g) {
			for r, n := range v.Gives {
				lost[r] += n
			}
		}
	}
	return lost
}

// limitsGivers reports whether a queue may not lose all the pods that may be evicted for a wish:
// then what one node costs depends on who leaves others.
func (w *World) limitsGivers(wish *Wish) bool {
	var all []*Victim
	for _, n := range w.Nodes {
		for _, v := range n.victims {
			if len(v.Givers) > 0 && wish.mayEvict(v) {
				all = append(all, v)
			}
		}
	}
	return !keepsGivers(all)
}

// hasGivers reports whether pods of other queues may be evicted for a wish.
func (n *Node) hasGivers(wish *Wish) bool {
	return slices.ContainsFunc(n.victims, func(v *Victim) bool { return wish.mayEvict(v) && len(v.Givers) > 0 })
}
