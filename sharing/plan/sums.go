// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
)

// option is what it costs to have so many pods fit a node.
type option struct {
	node int
	set  []bool
	cost Cost
}

// improveSums looks for the cheapest numbers of pods on each node, among pods that are alike and
// nodes that do not depend on each other: what a plan costs is the sum of its nodes. It returns
// whether no plan costs less than what it found, or than what was found before.
func (t *together) improveSums() (exact bool) {
	byNode, exact := t.listOptions()
	if len(byNode) == 0 {
		return exact
	}
	sums := 0
	for _, options := range byNode {
		sums += len(options) * len(t.pods)
	}
	if sums > mostSums {
		return false
	}
	// best[k] is the cheapest way to have k pods fit the nodes so far, taken[n][k] how many of them
	// are on the n-th.
	best, known := make([]Cost, len(t.pods)+1), make([]bool, len(t.pods)+1)
	known[0] = true
	taken := make([][]int, len(byNode))
	for n, options := range byNode {
		taken[n] = make([]int, len(best))
		for k := len(t.pods); k > 0; k-- {
			for i := range options[:min(k, len(options))] {
				if rest := k - i - 1; known[rest] {
					if sum := best[rest].plus(options[i].cost); !known[k] || sum.Compare(best[k]) < 0 {
						best[k], known[k], taken[n][k] = sum, true, i+1
					}
				}
			}
		}
	}
	if k := len(t.pods); known[k] && best[k].Compare(t.cost) < 0 {
		t.takeOptions(byNode, taken)
	}
	return exact
}

// takeOptions replaces what was found before.
func (t *together) takeOptions(byNode [][]option, taken [][]int) {
	t.used, t.order, t.cost = map[int]*usedNode{}, nil, Cost{}
	left := len(t.pods)
	for n := len(byNode) - 1; n >= 0; n-- {
		k := taken[n][left]
		if k == 0 {
			continue
		}
		o := byNode[n][k-1]
		u := &usedNode{gone: o.set, cost: o.cost}
		for range k {
			left--
			u.pods = append(u.pods, left)
		}
		t.used[o.node], t.cost = u, t.cost.plus(o.cost)
		t.order = append(t.order, o.node)
	}
}

// listOptions returns what one, two ... pods cost on each node that a cheaper plan may use. It
// returns false if that is not all, or not the least.
func (t *together) listOptions() (byNode [][]option, exact bool) {
	p := t.pods[0]
	exact = p.isJudgedExactly() && t.hasOneGrace()
	counted := t.isCounted()
	for _, c := range t.cheap[p] {
		if c.least.Compare(t.cost) >= 0 {
			break
		}
		var options []option
		for k := range t.pods {
			if t.steps <= 0 {
				return nil, false
			}
			a := t.ask(c.node, slices.Repeat([]*Wish{p}, k+1))
			isSure := a.exact && (k == 0 || counted || a.set != nil && a.cost == Cost{})
			if exact = exact && isSure; a.set == nil || a.cost.Compare(t.cost) >= 0 {
				break
			}
			options = append(options, option{node: c.node, set: a.set, cost: a.cost})
		}
		if len(options) > 0 {
			byNode = append(byNode, options)
		}
	}
	return byNode, exact
}

// hasOneGrace reports whether all pods that may be evicted have the same grace period: then costs
// add up.
func (t *together) hasOneGrace() bool {
	grace := int32(-1)
	for _, n := range t.world.Nodes {
		for _, v := range n.victims {
			if t.pods[0].mayEvict(v) {
				if grace >= 0 && v.price.Grace != grace {
					return false
				}
				grace = v.price.Grace
			}
		}
	}
	return true
}
