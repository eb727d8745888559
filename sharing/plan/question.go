// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

// question is whether pods fit one node when some of its pods are gone. Sets of pods are marks by
// position among the victims of the node.
type question struct {
	*Node
	// pods are those that wait. All have the level of the first one, wish.
	pods []*Wish
	wish *Wish
	// others leave other nodes, and with them those that are gone here.
	others []*Victim
	gone   []bool
	// may are the other victims that may be evicted for the wish.
	may []bool
	// at is where those go that move, nil if nobody does.
	at *site
	// selective: some pod that may come does not accept all neighbours.
	selective bool
	// steps is how many questions a search may still ask, see findWithin.
	steps int
	// scratch is room for the views of the devices without some pods.
	scratch []sharing.View
}

// newQuestion readies the question whether pods fit a node.
func newQuestion(n *Node, pods []*Wish, others []*Victim, at *site) *question {
	q := &question{Node: n, pods: pods, wish: pods[0], others: others, at: at, may: make([]bool, len(n.victims)), gone: make([]bool, len(n.victims))}
	for i, v := range n.victims {
		staysWithGang := v.Gang != nil && !v.Gang.Waits && !v.Gang.maySpare(v.Role, 1) && !mayLeaveWhole(v.Gang, q.wish)
		q.may[i] = q.wish.mayEvict(v) && !v.isKept() && !staysWithGang && at.hasPlaceFor(v)
	}
	q.selective = at.hasSelective() || slices.ContainsFunc(pods, (*Wish).isSelective)
	leaving, _, _ := q.listLeaving(q.gone)
	for _, v := range leaving {
		if n.isHere(v) {
			q.gone[v.position], q.may[v.position] = true, false
		}
	}
	return q
}

func (w *Wish) isSelective() bool { return w.Request != nil && w.Request.Neighbours.IsSelective() }

func isExhausted(budgets []*Budget) bool {
	return slices.ContainsFunc(budgets, func(b *Budget) bool { return b.Allowed <= 0 })
}

// maySpare reports whether so many pods of one role may leave and the gang goes on.
func (g *Gang) maySpare(role, n int) bool {
	return n <= g.Spare && (role >= len(g.Roles) || n <= g.Roles[role])
}

// mayLeaveWhole reports whether all of a gang may be evicted for a wish.
func mayLeaveWhole(g *Gang, wish *Wish) bool {
	return !g.Stays && !slices.ContainsFunc(g.Members, func(v *Victim) bool { return !wish.mayEvict(v) || v.isKept() })
}

// fitsWithout reports whether the pods fit the node without these victims.
func (q *question) fitsWithout(gone []bool) bool {
	q.steps -= len(q.pods)
	if !q.hasAmounts(gone) {
		return false
	}
	_, fits := q.placeWithout(gone)
	return fits
}

// hasAmounts reports whether all resources but devices are enough.
func (q *question) hasAmounts(gone []bool) bool {
	for r := range q.wish.Takes {
		want := int64(0)
		for _, p := range q.pods {
			want += p.Takes[r]
		}
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

// placeWithout returns what the pods get of the devices without these victims, one after the other,
// and whether all get something.
func (q *question) placeWithout(gone []bool) (placements []sharing.Placement, fits bool) {
	q.scratch = append(q.scratch[:0], q.views...)
	for d := range q.scratch {
		if slices.ContainsFunc(q.holders[d], func(i int) bool { return gone[i] }) {
			q.scratch[d] = q.views[d].WithShares(q.sharesWithout(d, gone))
		}
	}
	for i, p := range q.pods {
		if p.Request == nil {
			placements = append(placements, sharing.Placement{})
			continue
		}
		placement, refused := place.Place(q.scratch, p.Request, p.Backends, p.Policy)
		if refused.Refused() {
			return nil, false
		}
		placements = append(placements, placement)
		if i+1 < len(q.pods) {
			q.noteInScratch(i, &placement)
		}
	}
	return placements, true
}

// noteInScratch has the views show what the i-th pod gets.
func (q *question) noteInScratch(i int, p *sharing.Placement) {
	notePlacement(q.scratch, waiterName(i), p)
}

// notePlacement has views show what a pod gets.
func notePlacement(views []sharing.View, owner sharing.Owner, p *sharing.Placement) {
	for d := range views {
		if v := &views[d]; p.Uses(v.Device.ID) {
			*v = v.With(owner, p)
		}
	}
}

// waiterName is the i-th of the pods as the owner of what it gets.
func waiterName(i int) sharing.Owner { return sharing.Owner(fmt.Sprint("pod ", i)) }

// nodeAfter returns the node with the pods and without these victims.
func (q *question) nodeAfter(gone []bool) *Node {
	n := *q.Node
	if placements, _ := q.placeWithout(gone); len(placements) > 0 {
		q.noteInScratch(len(placements)-1, &placements[len(placements)-1])
	}
	n.views, n.free = slices.Clone(q.scratch), slices.Clone(n.free)
	for _, p := range q.pods {
		for r := range p.Takes {
			n.free[r] -= p.Takes[r]
		}
	}
	return &n
}

// isHere reports whether a pod is on the node.
func (n *Node) isHere(v *Victim) bool { return v.node.Name == n.Name }

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

// listLeaving returns all pods that leave with these and with the others: if too few of a gang are
// left, all of it. It returns false if they may not leave.
func (q *question) listLeaving(gone []bool) (all []*Victim, cost Cost, ok bool) {
	all = slices.Clone(q.others)
	for i, leaves := range gone {
		if leaves && !slices.Contains(q.others, q.victims[i]) {
			all = append(all, q.victims[i])
		}
	}
	all, cost, ok = closeGangs(all, q.wish)
	return all, cost, ok && q.at.hasPlaces(all)
}

// closeGangs adds to pods that leave the rest of each gang that has too few left then, unless it
// waits. It returns what that costs, and false if they may not leave.
func closeGangs(leaving []*Victim, wish *Wish) (all []*Victim, cost Cost, ok bool) {
	all = leaving
	for _, g := range gangsOf(leaving) {
		if goesOn(g, all) {
			continue
		}
		if !g.Waits && !mayLeaveWhole(g, wish) {
			return nil, Cost{}, false
		}
		if cost.Gangs++; g.Waits {
			continue
		}
		for _, v := range g.Members {
			if !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	for _, v := range all {
		cost = cost.plus(v.price)
	}
	return all, cost, keepsBudgets(all) && keepsGivers(all)
}

// gangsOf returns the gangs of pods.
func gangsOf(pods []*Victim) (gangs []*Gang) {
	for _, v := range pods {
		if v.Gang != nil && !slices.Contains(gangs, v.Gang) {
			gangs = append(gangs, v.Gang)
		}
	}
	return gangs
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
