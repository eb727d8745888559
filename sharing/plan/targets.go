// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

const (
	// mostTargets is among how many nodes a place is looked for, where World.MostMoves does not say
	// less.
	mostTargets = 32
	// mostTries is how many places are tried for all pods that move together.
	mostTries = 256
)

// Move is a pod that moves, and where to.
type Move struct {
	Pod *Victim
	To  Place
}

// targets finds places for pods that move. A place must be free while all pods are still where they
// are: then the steps of a plan need no order, and whoever has left has a place whatever comes of
// the rest.
type targets struct {
	world *World
	// tightest are the nodes, those with the fewest empty devices first, and of them those with the
	// least free memory: whole devices are what moves are to give.
	tightest []int
	known    map[*Wish]*targetList
	// selective: some pod that moves does not accept all neighbours.
	selective bool
	// gaveUp says that some pods were said to find no places, and may find some.
	gaveUp bool
}

// targetList is the nodes on which a kind of pod fits, as far as they are known.
type targetList struct {
	nodes []int
	// next is the first of the tightest nodes that was not asked yet.
	next int
}

// newTargets returns nil for a world in which nobody moves.
func newTargets(w *World) *targets {
	moves := slices.ContainsFunc(w.Nodes, func(n *Node) bool { return slices.ContainsFunc(n.victims, (*Victim).isMover) })
	if !moves {
		return nil
	}
	t := &targets{world: w, known: map[*Wish]*targetList{}}
	for _, n := range w.Nodes {
		t.selective = t.selective || slices.ContainsFunc(n.victims, func(v *Victim) bool { return v.isMover() && v.Elsewhere.isSelective() })
	}
	empty, free := make([]int, len(w.Nodes)), make([]sharing.Bytes, len(w.Nodes))
	for i, n := range w.Nodes {
		t.tightest = append(t.tightest, i)
		for d := range n.views {
			free[i] += n.views[d].FreeMemory()
			if n.views[d].Empty() {
				empty[i]++
			}
		}
	}
	slices.SortStableFunc(t.tightest, func(i, j int) int {
		return cmp.Or(cmp.Compare(empty[i], empty[j]), cmp.Compare(free[i], free[j]))
	})
	return t
}

// ExplainNoMoves returns why nobody moves for anybody: no pod that moves finds a place even by
// itself. It is nil if one does.
func (w *World) ExplainNoMoves() *No {
	at := newTargets(w).siteOutside()
	no := &No{Proven: true}
	for _, n := range w.Nodes {
		for _, v := range n.victims {
			if v.isMover() && at.hasPlaceFor(v) {
				return nil
			}
		}
		no.Nodes[Nowhere]++
	}
	return no
}

// isMover reports whether the pod leaves only if it finds another place.
func (v *Victim) isMover() bool { return v.Elsewhere != nil }

// site is where pods are to go that wait: others cannot move there.
type site struct {
	*targets
	// busy are nodes, by name, that are no targets.
	busy []string
	// node is one of which they leave these views and amounts, nil if they leave all of each node.
	node  *Node
	views []sharing.View
	free  []int64
}

// isTarget reports whether a pod may move to a node.
func (s *site) isTarget(n *Node) bool { return !slices.Contains(s.busy, n.Name) }

// siteOutside returns the site of pods that may leave places on every node. It is nil without
// targets.
func (t *targets) siteOutside(busy ...string) *site {
	if t == nil {
		return nil
	}
	return &site{targets: t, busy: busy}
}

func (s *site) hasSelective() bool { return s != nil && s.selective }

// hasGivenUp reports whether pods were said to find no places, and may find some.
func (t *targets) hasGivenUp() bool { return t != nil && t.gaveUp }

// hasPlaceFor reports whether a pod may leave as far as it needs a place, if no other moves.
func (s *site) hasPlaceFor(v *Victim) bool {
	return s == nil || !v.isMover() || len(s.listTargets(v.Elsewhere, 1)) > 0
}

// hasPlaces reports whether pods find places that leave together, those of them that move.
func (s *site) hasPlaces(leaving []*Victim) bool {
	_, ok := s.findPlaces(leaving)
	return ok
}

// siteWith returns the site of the pods when they have their places and these victims leave.
func (q *question) siteWith(gone []bool) *site {
	if q.at == nil || !q.at.isTarget(q.Node) {
		return q.at
	}
	at := *q.at
	at.node, at.views, at.free = q.Node, slices.Clone(q.views), slices.Clone(q.free)
	placements, _ := q.placeWithout(gone)
	for i := range placements {
		notePlacement(at.views, waiterName(i), &placements[i])
	}
	for r := range at.free {
		left := at.free[r]
		for i, leaves := range gone {
			if leaves {
				left += q.victims[i].Takes[r]
			}
		}
		for _, p := range q.pods {
			left -= p.Takes[r]
		}
		at.free[r] = min(at.free[r], left)
	}
	return &at
}

// leavesPlaces reports whether those that leave find places when the pods have theirs.
func (q *question) leavesPlaces(gone []bool) bool {
	if q.at == nil {
		return true
	}
	all, _, _ := q.listLeaving(gone)
	return q.siteWith(gone).hasPlaces(all)
}

// findPlaces returns places for those of the pods that move, the largest first; false if there are
// none.
func (s *site) findPlaces(leaving []*Victim) (moves []Move, ok bool) {
	if s == nil {
		return nil, true
	}
	var movers []*Victim
	for _, v := range leaving {
		if v.isMover() {
			movers = append(movers, v)
		}
	}
	if most := s.world.MostMoves; most > 0 && len(movers) > most {
		return nil, false
	}
	slices.SortStableFunc(movers, func(a, b *Victim) int { return cmp.Compare(sizeOf(b), sizeOf(a)) })
	p := packing{site: s, nodes: map[int]*packed{}, tries: mostTries}
	if !p.placeAll(movers) {
		s.gaveUp = s.gaveUp || len(movers) > 1 || s.node != nil
		return nil, false
	}
	return p.moves, true
}

// sizeOf is how much memory a pod has of the devices of its node.
func sizeOf(v *Victim) (size sharing.Bytes) {
	for _, d := range v.node.devices[v.position] {
		held := v.node.views[d].Held()
		for i := range held {
			if held[i].Owner == v.Owner {
				size += held[i].Share.Memory
			}
		}
	}
	return size
}

// listTargets returns nodes on which a kind of pod fits: so many, or all.
func (s *site) listTargets(kind *Wish, most int) (nodes []int) {
	l := s.known[kind]
	if l == nil {
		l = &targetList{}
		s.known[kind] = l
	}
	for i := 0; len(nodes) < most; i++ {
		if i == len(l.nodes) && !s.extendList(l, kind) {
			break
		}
		if s.isTarget(s.world.Nodes[l.nodes[i]]) {
			nodes = append(nodes, l.nodes[i])
		}
	}
	return nodes
}

// extendList adds one more node to a list. It returns false if there is none.
func (t *targets) extendList(l *targetList, kind *Wish) bool {
	for l.next < len(t.tightest) {
		i := t.tightest[l.next]
		l.next++
		if !kind.excludesNode(i) && t.world.Nodes[i].Fits(kind) {
			l.nodes = append(l.nodes, i)
			return true
		}
	}
	return false
}

// packing is places for pods, while they are looked for.
type packing struct {
	*site
	nodes map[int]*packed
	moves []Move
	tries int
}

// packed is a node with the pods that move there.
type packed struct {
	views []sharing.View
	free  []int64
}

// placeAll finds places for pods, one after the other. Each of a few pods finds one if so many
// nodes have one for each, beside the node that they leave: that may have none once the pods that
// wait have theirs.
func (p *packing) placeAll(movers []*Victim) bool {
	if len(movers) == 0 {
		return true
	}
	v := movers[0]
	most := mostTargets
	if p.world.MostMoves > 0 {
		most = min(most, p.world.MostMoves)
	}
	if p.node != nil {
		most++
	}
	for _, n := range p.listTargets(v.Elsewhere, most) {
		if p.tries--; p.tries < 0 {
			return false
		}
		before := p.nodes[n]
		placement, fits := p.addMover(n, v)
		if !fits {
			continue
		}
		p.moves = append(p.moves, Move{Pod: v, To: Place{Node: n, Placement: placement}})
		if p.placeAll(movers[1:]) {
			return true
		}
		p.moves = p.moves[:len(p.moves)-1]
		p.nodes[n] = before
	}
	return false
}

// addMover has a pod move to a node, and returns what it gets of its devices, and whether it fits.
func (p *packing) addMover(n int, v *Victim) (placement sharing.Placement, fits bool) {
	to := p.nodes[n]
	if to == nil {
		to = &packed{views: p.world.Nodes[n].views, free: p.world.Nodes[n].free}
		if p.node != nil && p.node.Name == p.world.Nodes[n].Name {
			to = &packed{views: p.views, free: p.free}
		}
	}
	kind := v.Elsewhere
	for r, want := range kind.Takes {
		if want > 0 && to.free[r] < want {
			return sharing.Placement{}, false
		}
	}
	after := &packed{views: to.views, free: slices.Clone(to.free)}
	if kind.Request != nil {
		var refused sharing.Refusals
		placement, refused = place.Place(to.views, kind.Request, kind.Backends, kind.Policy)
		if refused.Refused() {
			return sharing.Placement{}, false
		}
		after.views = slices.Clone(to.views)
		notePlacement(after.views, "moves: "+v.Owner, &placement)
	}
	for r := range kind.Takes {
		after.free[r] -= kind.Takes[r]
	}
	p.nodes[n] = after
	return placement, true
}
