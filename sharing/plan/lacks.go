// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
)

// hasEnough reports whether pods free what the queue lacks when they leave.
func (w *World) hasEnough(leaving []*Victim) bool {
	for r, lacks := range w.Lacks {
		for _, v := range leaving {
			if r < len(v.Frees) && !v.isMover() {
				lacks -= v.Frees[r]
			}
		}
		if lacks > 0 {
			return false
		}
	}
	return true
}

// coverLacks returns a plan whose pods also free what the queue lacks. Either others leave in
// addition to those of a plan, or it is found first who leaves for the queue, and then whether that
// makes room.
func coverLacks(w *World, pods []*Wish, without *Plan) (Plan, *No) {
	all := w.listFreeing(pods[0])
	best, found := Plan{}, false
	for _, order := range [][]*Victim{all, w.largestFirst(all)} {
		for _, base := range [][]*Victim{without.Evict, nil} {
			leaving, ok := w.addUntilEnough(base, order, pods[0])
			if !ok {
				continue
			}
			p, no := findPlaces(w, pods, leaving)
			if no == nil && (!found || p.Cost.Compare(best.Cost) < 0) {
				best, found = p, true
			}
		}
	}
	if !found {
		return Plan{}, &No{QueueIsFull: true, Proven: !w.hasEnough(all)}
	}
	return best, nil
}

// listFreeing returns the pods whose leaving frees anything that the queue lacks, the cheapest
// first.
func (w *World) listFreeing(wish *Wish) (all []*Victim) {
	for _, n := range w.Nodes {
		for _, v := range n.victims {
			if wish.mayEvict(v) && !v.isKept() && w.freedBy(v) > 0 {
				all = append(all, v)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *Victim) int { return a.price.Compare(b.price) })
	return all
}

// freedBy returns how much of what the queue lacks a pod frees, in percent of each amount.
func (w *World) freedBy(v *Victim) (percent int64) {
	for r, lacks := range w.Lacks {
		if lacks > 0 && r < len(v.Frees) && !v.isMover() {
			percent += int64(100 * min(1, float64(v.Frees[r])/float64(lacks)))
		}
	}
	return percent
}

// largestFirst returns pods in the order of their levels, and of each level those first that free
// the most.
func (w *World) largestFirst(all []*Victim) []*Victim {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *Victim) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(w.freedBy(b), w.freedBy(a)))
	})
	return sorted
}

// addUntilEnough adds pods to others until they free enough, and takes back those that are not
// needed for that. It returns false if they are not enough.
func (w *World) addUntilEnough(base, order []*Victim, wish *Wish) (leaving []*Victim, ok bool) {
	leaving = slices.Clone(base)
	for _, v := range order {
		if w.hasEnough(leaving) {
			break
		}
		if slices.Contains(leaving, v) {
			continue
		}
		if with, _, may := closeGangs(append(slices.Clone(leaving), v), wish); may {
			leaving = with
		}
	}
	if !w.hasEnough(leaving) {
		return leaving, false
	}
	for i := len(leaving) - 1; i >= len(base); i-- {
		less := slices.Delete(slices.Clone(leaving), i, i+1)
		if v := leaving[i]; v.Gang == nil && w.hasEnough(less) {
			leaving = less
		}
	}
	return leaving, true
}

// sparePods spares the pods of a plan that need not leave, the dearest first.
func (w *World) sparePods(p *Plan, pods []*Wish) {
	order := slices.Clone(p.Evict)
	slices.SortStableFunc(order, func(a, b *Victim) int { return b.price.Compare(a.price) })
	for _, v := range order {
		less := slices.DeleteFunc(slices.Clone(p.Evict), func(u *Victim) bool { return u == v })
		all, cost, ok := closeGangs(less, pods[0])
		if !ok || len(all) != len(less) || !w.hasEnough(less) {
			continue
		}
		if places, fits := w.placeAgain(p, pods, less, v); fits {
			p.Places, p.Evict, p.Cost = places, less, cost
		}
	}
}

// placeAgain returns the places of a plan when one pod stays and these leave, and whether all fit.
func (w *World) placeAgain(p *Plan, pods []*Wish, leaving []*Victim, stays *Victim) (places []Place, fits bool) {
	var which []int
	var wishes []*Wish
	for _, i := range p.Order {
		if w.Nodes[p.Places[i].Node].isHere(stays) {
			which, wishes = append(which, i), append(wishes, pods[i])
		}
	}
	if len(which) == 0 {
		return p.Places, true
	}
	q := newQuestion(w.Nodes[p.Places[which[0]].Node], wishes, leaving, nil)
	placements, fits := q.placeWithout(q.gone)
	if !fits || !q.hasAmounts(q.gone) {
		return nil, false
	}
	places = slices.Clone(p.Places)
	for k, i := range which {
		places[i].Placement = placements[k]
	}
	return places, true
}
