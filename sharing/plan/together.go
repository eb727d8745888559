// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
)

const (
	// stepsPerPod is how many questions more are asked for each pod of several.
	stepsPerPod = 1000
	// mostAtOnce is for how many pods of one node, and among how many victims, all is weighed again
	// when one more comes. Else those that leave for the pods before leave in any case.
	mostAtOnce        = 4
	mostVictimsAtOnce = 24
	// mostSums is how many sums are weighed to prove a plan for several pods.
	mostSums = 1_000_000
)

// FindTogether returns a cheap plan for pods that start together, or why there is none. They have
// the same level. Pods that are the same *Wish may take each other's place. What the queue lacks
// has to leave, too.
//
// Pod after pod gets the node where it costs the least then: on a node with several of them, room
// is made for all at once. Of different pods, those go first for which the fewest nodes will do;
// then it is tried the other way round. For pods that are alike, combinations of nodes that cost
// less are looked for.
func FindTogether(w *World, pods []*Wish) (Plan, *No) {
	p, no := findPlaces(w, pods, nil)
	if no != nil || w.hasEnough(p.Evict) {
		return p, no
	}
	return coverLacks(w, pods, &p)
}

// findPlaces is FindTogether whatever the queue lacks. Some pods leave in any case.
func findPlaces(w *World, pods []*Wish, base []*Victim) (Plan, *No) {
	if len(pods) == 1 && len(base) == 0 {
		return Find(w, pods[0])
	}
	t := newTogether(w, pods, base)
	if !t.isCoupled && w.limitsGivers(pods[0]) {
		// Queues rarely give up all that they may: first a plan as if each node were alone.
		p, no := t.tryOrders()
		if no == nil && keepsGivers(p.Evict) || no != nil && no.Proven {
			return p, no
		}
		t = newTogether(w, pods, base)
		t.isCoupled = true
	}
	return t.tryOrders()
}

// tryOrders gives nodes to the pods in an order, and unless they are alike, the other way round.
func (t *together) tryOrders() (Plan, *No) {
	order := t.hardestFirst()
	best, no := t.tryOrder(order)
	if len(t.cheap) > 1 {
		slices.Reverse(order)
		if p, alsoNo := t.tryOrder(order); alsoNo == nil && (no != nil || p.Cost.Compare(best.Cost) < 0) {
			best, no = p, nil
		}
	}
	return best, no
}

// tryOrder gives nodes to the pods in an order.
func (t *together) tryOrder(order []int) (Plan, *No) {
	t.used, t.order, t.cost = map[int]*usedNode{}, nil, Cost{}
	for fit, i := range order {
		if !t.addPod(i, t.pods[i]) {
			return Plan{}, t.explainNo(t.pods[i], fit)
		}
	}
	exact := t.isAlike() && t.improveSums()
	t.improveNodes()
	plan, ok := t.plan()
	if !ok {
		return Plan{}, &No{Fit: len(order) - 1, Of: len(order)}
	}
	if !exact {
		t.world.sparePods(&plan, t.pods)
	}
	if plan.Moves, ok = t.siteOf().findPlaces(plan.Evict); !ok {
		return Plan{}, &No{Fit: len(order) - 1, Of: len(order)}
	}
	plan.Proven = exact || plan.Cost == Cost{}
	return plan, nil
}

// hardestFirst returns the pods in the order of how many nodes may have room for them.
func (t *together) hardestFirst() (order []int) {
	for i := range t.pods {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(len(t.cheap[t.pods[i]]), len(t.cheap[t.pods[j]])) })
	return order
}

// together is a plan for several pods while it is made.
type together struct {
	world *World
	pods  []*Wish
	steps int
	// base are pods that leave in any case.
	base []*Victim
	// used are the nodes that pods have been given, cheap is where each kind of pod may go, the
	// cheapest first.
	used  map[int]*usedNode
	order []int // the used nodes as they were given
	cheap map[*Wish][]candidate
	cost  Cost
	// fresh are answers about nodes without pods.
	fresh map[freshKey]*answer
	// isCoupled says that what one node costs depends on who leaves others.
	isCoupled bool
	// to is where those go that move, nil if nobody does.
	to *targets
}

// freshKey is a node and a kind of pod.
type freshKey struct {
	node int
	pod  *Wish
}

// usedNode is the pods that a node is given and who leaves it for them.
type usedNode struct {
	pods  []int // by position
	gone  []bool
	cost  Cost
	exact bool
	// next is the answer if one more pod of a kind comes, nil if it is not known.
	next    *answer
	nextFor *Wish
	// after is the node with these pods, nil if it is not known.
	after *Node
	// fullFor is the kind of pod of which no more fits whoever leaves, nil if none is known.
	fullFor *Wish
}

func newTogether(w *World, pods []*Wish, base []*Victim) *together {
	t := &together{world: w, pods: pods, base: base, steps: mostStepsInAll + stepsPerPod*len(pods), cheap: map[*Wish][]candidate{}, fresh: map[freshKey]*answer{}, to: newTargets(w)}
	t.isCoupled = len(base) > 0 || t.to != nil
	for _, p := range pods {
		if t.cheap[p] == nil {
			t.cheap[p] = t.listCandidates(p)
		}
	}
	for _, n := range w.Nodes {
		t.isCoupled = t.isCoupled || slices.ContainsFunc(n.victims, func(v *Victim) bool {
			return pods[0].mayEvict(v) && (v.Gang != nil || len(v.Budgets) > 0)
		})
	}
	return t
}

// listCandidates returns the nodes that may have room. Where pods leave in any case, it may cost
// nothing.
func (t *together) listCandidates(p *Wish) []candidate {
	all := listCandidates(t.world, p)
	for i := range all {
		if slices.ContainsFunc(t.base, t.world.Nodes[all[i].node].isHere) {
			all[i].least = Cost{}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return a.least.Compare(b.least) })
	return all
}

// ask returns the cheapest way to make pods fit a node. Where nodes depend on each other, its cost
// is that of all nodes.
func (t *together) ask(n int, pods []*Wish) *answer {
	a := newQuestion(t.world.Nodes[n], pods, t.othersThan(n), t.siteOf(n)).findWithin(&t.steps, Cost{}, false)
	return &a
}

// askFresh is ask for a node without pods and the first one.
func (t *together) askFresh(n int, p *Wish) *answer {
	key := freshKey{n, p}
	if t.isCoupled || t.fresh[key] == nil {
		t.fresh[key] = t.ask(n, []*Wish{p})
	}
	return t.fresh[key]
}

// askForOneMore is ask for a node with its pods and one more.
func (t *together) askForOneMore(n int, p *Wish) *answer {
	u, node := t.used[n], t.world.Nodes[n]
	if len(u.pods) < mostAtOnce && len(node.victims) <= mostVictimsAtOnce {
		return t.ask(n, t.podsOn(n, p))
	}
	if u.after == nil {
		u.after = newQuestion(node, t.podsOn(n, nil), t.othersThan(n), nil).nodeAfter(u.gone)
	}
	q := newQuestion(u.after, []*Wish{p}, t.othersThan(n), t.siteOf(n))
	for i, leaves := range u.gone {
		q.gone[i], q.may[i] = q.gone[i] || leaves, q.may[i] && !leaves
	}
	a := q.findWithin(&t.steps, Cost{}, false)
	a.exact = false
	return &a
}

// othersThan returns who leaves in any case, and where nodes depend on each other, who leaves for
// the pods of all nodes but one.
func (t *together) othersThan(n int) []*Victim {
	others := slices.Clone(t.base)
	if t.isCoupled {
		for _, i := range t.order {
			if i != n {
				others = append(others, t.chosenOn(i)...)
			}
		}
	}
	return others
}

// siteOf is where pods are to go if a node is given one: no other pods move to these nodes.
func (t *together) siteOf(nodes ...int) *site {
	var busy []string
	for _, n := range slices.Concat(t.order, nodes) {
		busy = append(busy, t.world.Nodes[n].Name)
	}
	return t.to.siteOutside(busy...)
}

// chosenOn returns the pods that leave a node for those that it is given.
func (t *together) chosenOn(n int) (chosen []*Victim) {
	for i, leaves := range t.used[n].gone {
		if leaves {
			chosen = append(chosen, t.world.Nodes[n].victims[i])
		}
	}
	return chosen
}

// podsOn returns the pods that a node is given, and one more if it is not nil.
func (t *together) podsOn(n int, more *Wish) (pods []*Wish) {
	if u := t.used[n]; u != nil {
		for _, i := range u.pods {
			pods = append(pods, t.pods[i])
		}
	}
	if more != nil {
		pods = append(pods, more)
	}
	return pods
}

// addPod gives the i-th pod the node where it costs the least. It returns false if there is none.
func (t *together) addPod(i int, p *Wish) bool {
	var best Cost
	var chosen *answer
	node := -1
	note := func(n int, a *answer, total Cost) {
		if a.set != nil && (chosen == nil || total.Compare(best) < 0) {
			best, chosen, node = total, a, n
		}
	}
	for _, n := range t.order {
		u := t.used[n]
		if p.excludesNode(n) || u.fullFor == p {
			continue
		}
		if u.next == nil || u.nextFor != p || t.isCoupled {
			u.next, u.nextFor = t.askForOneMore(n, p), p
		}
		if u.next.set == nil && !t.world.Nodes[n].hasGangs() {
			u.fullFor = p
		}
		note(n, u.next, t.totalWith(n, u.next))
	}
	for _, c := range t.cheap[p] {
		if chosen != nil && t.cost.plus(c.least).Compare(best) >= 0 {
			break
		}
		if t.used[c.node] == nil {
			a := t.askFresh(c.node, p)
			note(c.node, a, t.totalWith(c.node, a))
		}
	}
	if chosen == nil {
		return false
	}
	t.give(node, i, chosen)
	t.cost = best
	return true
}

// totalWith returns what all nodes cost with an answer for one of them.
func (t *together) totalWith(n int, a *answer) Cost {
	u := t.used[n]
	switch {
	case t.isCoupled:
		return a.cost
	case u == nil:
		return t.cost.plus(a.cost)
	}
	return t.cost.minus(u.cost).plus(a.cost)
}

// give gives a node one more pod.
func (t *together) give(n, i int, a *answer) {
	u := t.used[n]
	if u == nil {
		u = &usedNode{exact: true}
		t.used[n] = u
		t.order = append(t.order, n)
	}
	u.pods = append(u.pods, i)
	u.gone, u.cost, u.next, u.after = slices.Clone(a.set), a.cost, nil, nil
	u.exact = u.exact && a.exact
}

// improveNodes looks once more who has to leave each node, now that it is known who leaves others.
func (t *together) improveNodes() {
	if !t.isCoupled {
		return
	}
	for _, n := range t.order {
		if a := t.ask(n, t.podsOn(n, nil)); a.set != nil && a.cost.Compare(t.cost) < 0 {
			t.used[n].gone, t.cost = a.set, a.cost
		}
	}
}

// plan returns what was found. It returns false if the pods may not leave together.
func (t *together) plan() (Plan, bool) {
	p := Plan{Places: make([]Place, len(t.pods))}
	all := slices.Clone(t.base)
	for _, n := range t.order {
		for _, v := range t.chosenOn(n) {
			if !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	for _, n := range t.order {
		q := newQuestion(t.world.Nodes[n], t.podsOn(n, nil), all, nil)
		placements, fits := q.placeWithout(q.gone)
		if !fits {
			return Plan{}, false
		}
		for k, i := range t.used[n].pods {
			p.Places[i] = Place{Node: n, Placement: placements[k]}
			p.Order = append(p.Order, i)
		}
	}
	var ok bool
	p.Evict, p.Cost, ok = closeGangs(all, t.pods[0])
	return p, ok
}

// explainNo returns why there is no room for the i-th pod.
func (t *together) explainNo(p *Wish, i int) *No {
	if _, no := Find(t.world, p); no != nil && len(t.base) == 0 {
		return no
	}
	no := &No{Fit: i, Of: len(t.pods), Proven: t.isAlike() && t.isCounted()}
	for _, u := range t.used {
		no.Proven = no.Proven && u.exact
	}
	return no
}

// isAlike reports whether all pods are alike, and nodes do not depend on each other.
func (t *together) isAlike() bool { return !t.isCoupled && len(t.cheap) == 1 }

// isCounted reports whether a number of pods fits a node if and only if it fits one after the
// other: each takes one device, or whole ones, wherever they are.
func (t *together) isCounted() bool {
	p := t.pods[0]
	if p.Request == nil {
		return true
	}
	if !p.hasOneRequest() || p.isSelective() {
		return false
	}
	req := &p.Request.Requests[0]
	takesWhole := (req.Memory.Whole() || req.Exclusive()) && !p.Request.OneNUMA
	return (req.Count == 1 || takesWhole) && !slices.ContainsFunc(t.cheap[p], func(c candidate) bool {
		return t.world.Nodes[c.node].hasPartitions()
	})
}

// hasGangs reports whether members of gangs on the node may leave with others elsewhere.
func (n *Node) hasGangs() bool {
	return slices.ContainsFunc(n.victims, func(v *Victim) bool { return v.Gang != nil })
}

// hasPartitions reports whether a device of the node is cut into partitions.
func (n *Node) hasPartitions() bool {
	for d := range n.views {
		if n.views[d].Partitioned() {
			return true
		}
	}
	return false
}
