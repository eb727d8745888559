// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
)

// atom is pods of one node that leave together, and what that costs.
type atom struct {
	pods []int
	cost Cost
}

// cover looks for the cheapest set of atoms that is enough.
type cover struct {
	atoms []atom
	// gone marks the pods that have left before.
	gone []bool
	// fits says whether a set is enough. A set with more pods is enough too.
	fits func(gone []bool) bool
	// price is what a set costs, false if it may not leave. A set with more pods costs no less.
	price func(gone []bool) (Cost, bool)
	// alike reports whether two atoms may take each other's place; nil if none may.
	alike func(a, b *atom) bool
	// accepts looks once more at a set that is enough and may leave; nil if there is no need.
	accepts func(gone []bool) bool
	steps   *int

	best  Cost
	set   []bool // the best one, nil if there is none yet
	bound bool   // a set must cost less than best
}

// findBest finds the best set. It returns false if it gave up before all sets were weighed.
//
// It goes through the atoms, the dearest first, and spares each if what is left is enough. Then it
// goes back and has some of them leave instead of others.
func (c *cover) findBest() (exact bool) {
	slices.SortStableFunc(c.atoms, func(a, b atom) int { return b.cost.Compare(a.cost) })
	most := slices.Clone(c.gone)
	for i := range c.atoms {
		c.atoms[i].markPods(most, true)
	}
	if !c.fits(most) {
		return true
	}
	c.decideAtom(0, slices.Clone(c.gone), most, false)
	return *c.steps > 0
}

// decideAtom spares the i-th atom or has it leave, and then those behind it. The chosen pods leave
// for sure, most are those and all that are not decided. Chosen says that the atom before leaves.
func (c *cover) decideAtom(i int, chosen, most []bool, leaves bool) {
	if *c.steps <= 0 {
		return
	}
	cost, ok := c.price(chosen)
	if !ok || c.bound && cost.Compare(c.best) >= 0 {
		return
	}
	if i == len(c.atoms) {
		if c.accepts != nil && !c.accepts(chosen) {
			return
		}
		c.best, c.set, c.bound = cost, slices.Clone(chosen), true
		return
	}
	a := &c.atoms[i]
	if !(leaves && c.alike != nil && c.alike(a, &c.atoms[i-1])) {
		a.markPods(most, false)
		if c.fits(most) {
			c.decideAtom(i+1, chosen, most, false)
		}
		a.markPods(most, true)
	}
	a.markPods(chosen, true)
	c.decideAtom(i+1, chosen, most, true)
	a.markPods(chosen, false)
}

// markPods notes of the pods of an atom whether they leave.
func (a *atom) markPods(set []bool, leaves bool) {
	for _, p := range a.pods {
		set[p] = leaves
	}
}
