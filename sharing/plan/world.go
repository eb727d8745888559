// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/policy"
)

// World is a cluster as it will be when the pods that are leaving already are gone.
type World struct {
	Nodes []*Node
	// Lacks is how much of each limited amount has to leave before the queue may have the pods that
	// wait.
	Lacks []int64
	// MostMoves is how many pods may move, 0 for any number.
	MostMoves int
}

// Node is a node with what is on it. It is made by NewNode.
type Node struct {
	Name  string
	views []sharing.View
	// free is what is left of each resource, capacity what there is in all.
	free, capacity []int64
	victims        []*Victim
	// holders are the victims on each device, by position, the cheapest first.
	holders [][]int
	// owners is how many pods have a share of each device, victims or not.
	owners []int
	// devices are the devices of each victim, by position.
	devices [][]int
}

// Victim is a pod that may be evicted for others: for more important ones of its queue, or for a
// queue that has less than it deserves.
type Victim struct {
	Owner sharing.Owner
	// Level ranks the priority of its job, below Levels. The lowest is 0.
	Level int
	// Takes is what its leaving frees of each resource of the node.
	Takes []int64
	// Frees is what its leaving frees of each limited amount of the queue, nil for nothing. A pod
	// that moves frees nothing.
	Frees []int64
	// Gang is the gang of a pod that runs together with others, nil for any other pod. Role is its
	// position in Gang.Roles.
	Gang *Gang
	Role int
	// Budgets count the pod.
	Budgets []*Budget
	// Givers are its queue and those above it that give the pod up, nil if it leaves for one of
	// its own queue. Gives is what they lose of each amount in Giver.Most.
	Givers []*Giver
	Gives  []int64
	// Turn ranks its queue by how much more it has than it deserves: 0 has the most.
	Turn int
	// Grace is how long it may take to end, Age how long it has run, in seconds. Restart is how
	// much of that its end loses at most, 0 if that is not known.
	Grace, Age, Restart int64
	// Elsewhere is what the pod asks for where it moves. It leaves only if another place is free
	// for it. It is nil for a pod that leaves for good, and equal for those that are alike.
	Elsewhere *Wish

	// NewNode sets where it is and what its end costs by itself.
	node     *Node
	position int
	price    Cost
}

// Gang is pods that need each other.
type Gang struct {
	// Members are those that run and may be evicted.
	Members []*Victim
	// Spare is how many may leave and the others go on.
	Spare int
	// Roles is how many of each role may leave and the others go on; empty if roles do not matter.
	Roles []int
	// Stays says that a member may not be evicted: the gang cannot leave as a whole.
	Stays bool
	// Waits says that members who leave come back: the others stay and wait for them.
	Waits bool
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Name string
	// Allowed is how many more pods may leave.
	Allowed int
}

// Wish is a pod that waits for others to leave. It evicts victims of lower levels.
type Wish struct {
	// Request is what the pod asks of devices, nil for nothing.
	Request  *sharing.PodRequest
	Backends sharing.Backends
	Policy   policy.Policy
	// Takes is what it asks of each other resource.
	Takes []int64
	Level int
	// Excluded are the nodes that refuse the pod whoever leaves, by position; nil excludes none.
	Excluded []bool
}

// Plan is what makes pods fit.
type Plan struct {
	// Places has the place of each pod that waits, and Order the pods in the order in which they
	// get their devices.
	Places []Place
	Order  []int
	// Evict are the pods that leave, on any node, and Moves where those of them go that move.
	Evict []*Victim
	Moves []Move
	Cost  Cost
	// Proven says that no plan costs less.
	Proven bool
}

// Place is where a pod goes.
type Place struct {
	// Node is the position of the node.
	Node int
	// Placement is what the pod gets of its devices.
	Placement sharing.Placement
}

// NewNode makes a node of its devices, what is left and what there is in all of each other
// resource, and the pods that may be evicted. It keeps its arguments. A victim is on one node.
func NewNode(name string, views []sharing.View, free, capacity []int64, victims []*Victim) *Node {
	n := &Node{Name: name, views: views, free: free, capacity: capacity, victims: victims}
	n.holders, n.devices, n.owners = make([][]int, len(views)), make([][]int, len(victims)), make([]int, len(views))
	position := make(map[sharing.Owner]int, len(victims))
	for i, v := range victims {
		position[v.Owner] = i
	}
	for d := range views {
		held := views[d].Held()
		for j := range held {
			if j > 0 && held[j].Owner == held[j-1].Owner {
				continue
			}
			n.owners[d]++
			if i, ok := position[held[j].Owner]; ok {
				n.holders[d], n.devices[i] = append(n.holders[d], i), append(n.devices[i], d)
			}
		}
	}
	for i, v := range victims {
		v.node, v.position, v.price = n, i, costOf(v, len(n.devices[i]))
	}
	for d := range n.holders {
		slices.SortStableFunc(n.holders[d], func(i, j int) int {
			return withoutGrace(victims[i].price).Compare(withoutGrace(victims[j].price))
		})
	}
	return n
}

// Fits reports whether the wish fits a node without evictions.
func (n *Node) Fits(w *Wish) bool {
	return newQuestion(n, []*Wish{w}, nil, nil).fitsWithout(make([]bool, len(n.victims)))
}

// mayEvict reports whether a pod may be evicted for the wish, as far as its priority says.
func (w *Wish) mayEvict(v *Victim) bool { return v.Level < w.Level }

// excludesNode reports whether a node refuses the pod whoever leaves.
func (w *Wish) excludesNode(n int) bool { return w.Excluded != nil && w.Excluded[n] }

// hasOneRequest reports whether one container alone asks for devices.
func (w *Wish) hasOneRequest() bool { return w.Request != nil && len(w.Request.Requests) == 1 }

// isJudgedExactly reports whether place finds room for the pod wherever there is some. For larger
// pods its search may give up.
func (w *Wish) isJudgedExactly() bool {
	devices := 0
	for i := 0; w.Request != nil && i < len(w.Request.Requests); i++ {
		devices += w.Request.Requests[i].Count
	}
	return devices <= 2 || w.hasOneRequest()
}

// forOneDevice returns a request as it is made of each device.
func (w *Wish) forOneDevice() sharing.PodRequest {
	one := *w.Request
	one.Requests = slices.Clone(one.Requests)
	one.Requests[0].Count = 1
	return one
}
