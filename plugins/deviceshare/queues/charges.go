// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/quota"
)

// charges keeps what pods on nodes take of their queues from one session to the next. It is
// derived from the nodes and nothing else: a node that changed is added up anew. It belongs to
// the session goroutine, and is empty as long as no queue has a limit.
type charges struct {
	nodes    map[string]charge
	hardware hardware
}

// charge is what the owners on a node take.
type charge struct {
	node   *nodes.Node
	owners map[sharing.Owner]quota.Amounts
}

// hardware is which devices the cluster has.
type hardware struct {
	kinds quota.Kinds
	// total adds up those of nodes that take pods, all those of every node.
	total, all quota.Amounts
}

// updateFromNodes brings the charges up to date and returns the devices of the cluster.
func (c *charges) updateFromNodes(known map[string]*nodes.Node) hardware {
	changed := len(c.nodes) != len(known)
	next := make(map[string]charge, len(known))
	for name, n := range known {
		old, ok := c.nodes[name]
		if ok && old.node == n {
			next[name] = old
			continue
		}
		changed = changed || !ok || old.node.Inventory != n.Inventory || (old.node.Unusable == nil) != (n.Unusable == nil)
		next[name] = chargeOf(n)
	}
	c.nodes = next
	if !changed {
		return c.hardware
	}
	var all, usable []*sharing.Inventory
	for _, n := range known {
		if n.Inventory == nil {
			continue
		}
		all = append(all, n.Inventory)
		if n.Unusable == nil {
			usable = append(usable, n.Inventory)
		}
	}
	c.hardware = hardware{kinds: quota.KindsOf(all...), total: quota.Total(usable...), all: quota.Total(all...)}
	return c.hardware
}

func chargeOf(n *nodes.Node) charge {
	c := charge{node: n}
	if n.Ledger == nil {
		return c
	}
	c.owners = make(map[sharing.Owner]quota.Amounts, n.Ledger.Len())
	for _, o := range n.Ledger.Owners() {
		if p, ok := n.Ledger.Placement(o); ok {
			c.owners[o] = quota.Held(&p, n.Inventory)
		}
	}
	return c
}

// ownerAmounts returns what an owner that the snapshot shows on a node takes; false if it is not
// known.
func (c *charges) ownerAmounts(n *nodes.Node, o sharing.Owner) (quota.Amounts, bool) {
	a, known := c.nodes[n.Name].owners[o]
	return a, known
}
