// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Obstacle is why no evictions help on a node.
type Obstacle uint8

// The obstacles.
const (
	// Excluded: the node refuses the pod whoever leaves.
	Excluded Obstacle = iota
	// TooSmall: the pod does not fit the node if it is empty.
	TooSmall
	// Important: pods are in the way that may not be evicted for this one: of the same or a higher
	// priority, or no victims.
	Important
	// Budgeted: only pods could leave that a PodDisruptionBudget protects.
	Budgeted
	// Deserved: queues keep what they deserve.
	Deserved
	// GangStays: only parts of gangs could leave.
	GangStays
	// Nowhere: pods could only move, and no other places are free for them.
	Nowhere
	// NotFound: the search gave up.
	NotFound
	// Obstacles is how many there are.
	Obstacles
)

// No is why there is no plan.
type No struct {
	// Nodes is how many nodes have each obstacle.
	Nodes [Obstacles]int
	// Budgets are the names of those that protect pods, sorted.
	Budgets []string
	// Fit is for how many of several pods there is a plan, and Of how many they are. Of is 0 if a
	// pod finds no room even alone.
	Fit, Of int
	// QueueIsFull says that no pods can leave that free what the queue lacks, and there is room.
	QueueIsFull bool
	// Proven says that there is none. Else the search gave up.
	Proven bool
}

// String says how many nodes have which obstacle.
func (n *No) String() string {
	var parts []string
	if n.QueueIsFull {
		parts = append(parts, "the queue is full")
	}
	if n.Of > 0 {
		parts = append(parts, fmt.Sprintf("room for %d of %d pods", n.Fit, n.Of))
	}
	for o, count := range n.Nodes {
		if count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count, Obstacle(o)))
		}
	}
	return strings.Join(parts, ", ")
}

// maxNamed is how many victims or budgets a text names.
const maxNamed = 4

// Advice is why no evictions help, for people, in words that stay the same while nodes come and go;
// "" if there are no pods that could leave.
func (n *No) Advice() string {
	var parts []string
	if n.Nodes[Budgeted] > 0 {
		parts = append(parts, "pods are protected by PodDisruptionBudgets: "+ListNames(n.Budgets))
	}
	if n.Nodes[Deserved] > 0 {
		parts = append(parts, "other queues keep what they deserve")
	}
	if n.Nodes[GangStays] > 0 {
		parts = append(parts, "of gangs, only parts could leave")
	}
	if n.Nodes[Nowhere] > 0 {
		parts = append(parts, "no other places are free for pods that may move")
	}
	if n.Of > 0 {
		parts = append(parts, fmt.Sprintf("there would be room for %d of %d pods", n.Fit, n.Of))
	}
	if n.Nodes[NotFound] > 0 {
		parts = append(parts, "the search for others gave up")
	}
	if len(parts) == 0 {
		return ""
	}
	what := "evictions"
	if n.Nodes[Nowhere] > 0 {
		what = "moves"
	}
	return "No " + what + " help: " + strings.Join(parts, "; ")
}

// ListNames is a list for people that names only the first ones of many.
func ListNames(names []string) string {
	if len(names) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}

// String is the obstacle as it stands behind a number of nodes.
func (o Obstacle) String() string {
	if o >= Obstacles {
		return "unknown"
	}
	return [Obstacles]string{
		"refuse the pod", "too small", "only pods that may not be evicted for it", "protected by budgets", "pods whose queues keep them",
		"parts of gangs that stay", "pods that find no other place", "not found",
	}[o]
}

// explainNo returns why there is no plan.
func explainNo(w *World, wish *Wish, proven bool) *No {
	no := &No{Proven: proven}
	for i, n := range w.Nodes {
		o := Excluded
		if !wish.excludesNode(i) {
			o = no.explainNode(n, wish)
		}
		no.Nodes[o]++
	}
	slices.Sort(no.Budgets)
	no.Budgets = slices.Compact(no.Budgets)
	return no
}

// explainNode returns the obstacle of one node, and notes the budgets that are in the way.
func (no *No) explainNode(n *Node, wish *Wish) Obstacle {
	if !n.holdsEmpty(wish) {
		return TooSmall
	}
	q := newQuestion(n, []*Wish{wish}, nil, nil)
	lower := make([]bool, len(n.victims))
	for i, v := range n.victims {
		lower[i] = wish.mayEvict(v)
	}
	if !q.fitsWithout(lower) {
		return Important
	}
	for i, v := range n.victims {
		if lower[i] {
			for _, b := range v.Budgets {
				no.Budgets = append(no.Budgets, b.Name)
			}
		}
	}
	switch {
	case n.hasBudgets(wish):
		return Budgeted
	case n.hasGivers(wish):
		return Deserved
	case n.hasMovers(wish):
		return Nowhere
	case q.fitsWithout(q.may):
		return NotFound
	}
	return GangStays
}

// hasBudgets reports whether budgets count pods that leave with those of the node that may leave.
func (n *Node) hasBudgets(wish *Wish) bool {
	return slices.ContainsFunc(n.victims, func(v *Victim) bool {
		if !wish.mayEvict(v) {
			return false
		}
		return len(v.Budgets) > 0 || v.Gang != nil && slices.ContainsFunc(v.Gang.Members, func(m *Victim) bool { return len(m.Budgets) > 0 })
	})
}

// hasMovers reports whether pods of the node may move for a wish.
func (n *Node) hasMovers(wish *Wish) bool {
	return slices.ContainsFunc(n.victims, func(v *Victim) bool { return wish.mayEvict(v) && v.isMover() })
}

// holdsEmpty reports whether the wish fits the node if it is empty.
func (n *Node) holdsEmpty(wish *Wish) bool {
	for r, want := range wish.Takes {
		if want > n.capacity[r] {
			return false
		}
	}
	if wish.Request == nil {
		return true
	}
	q := question{Node: &Node{views: slices.Clone(n.views)}, pods: []*Wish{wish}, wish: wish}
	q.holders = make([][]int, len(n.views))
	for d := range q.views {
		q.views[d] = n.views[d].WithShares(nil)
	}
	_, fits := q.placeWithout(nil)
	return fits
}
