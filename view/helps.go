// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

// mostHelps bounds how many pods are named that could leave, mostTries how many are tried.
const mostHelps, mostTries = 3, 20000

// findRemedies says what would let the pod in: a pod that leaves, or a smaller ask.
func (c *Cluster) findRemedies(ask *sharing.PodRequest) []string {
	var out []string
	tries := 0
	for _, n := range c.nodes {
		if n.Unusable != nil || n.Ledger == nil || n.Empty.Refuses(ask) {
			continue
		}
		for _, owner := range n.Ledger.Owners() {
			if len(out) == mostHelps || tries == mostTries {
				break
			}
			tries++
			if c.fitsWithout(n, ask, owner) {
				out = append(out, fmt.Sprintf("fits node %s if %s leaves", n.Name, c.nameOf(owner)))
			}
		}
	}
	if node, most := c.mostMemory(ask); most > 0 {
		out = append(out, fmt.Sprintf("%v would fit node %s now", most, node))
	}
	return out
}

// fitsWithout reports whether the pod fits the node once one pod has left it.
func (c *Cluster) fitsWithout(n *nodes.Node, ask *sharing.PodRequest, owner sharing.Owner) bool {
	ledger := n.Ledger.Fork()
	ledger.Release(owner)
	return c.fitsDevices(ledger.Views(), ask)
}

func (c *Cluster) fitsDevices(views []sharing.View, ask *sharing.PodRequest) bool {
	_, refused := place.Place(views, ask, c.backends, policyOf(ask))
	return !refused.Refused()
}

// mostMemory is the node where a pod fits now with as much memory as possible, and that amount,
// in MiB; 0 if memory is not what it lacks, or it has several containers.
func (c *Cluster) mostMemory(ask *sharing.PodRequest) (node string, most sharing.Bytes) {
	if len(ask.Requests) != 1 {
		return "", 0
	}
	asked, absolute := ask.Requests[0].Memory.Absolute()
	if !absolute {
		return "", 0
	}
	less := func(n *nodes.Node, mib int64) bool {
		smaller := *ask
		r := ask.Requests[0]
		r.Memory = sharing.AbsoluteMemory(sharing.MiBs(mib))
		smaller.Requests = []sharing.Request{r}
		return c.fitsDevices(n.Ledger.Views(), &smaller)
	}
	var best int64
	for _, n := range c.nodes {
		if n.Unusable != nil || n.Ledger == nil || !less(n, best+1) {
			continue
		}
		low, high := best+1, asked.WholeMiB()
		for low+1 < high {
			if middle := (low + high) / 2; less(n, middle) {
				low = middle
			} else {
				high = middle
			}
		}
		node, best = n.Name, low
	}
	return node, sharing.MiBs(best)
}
