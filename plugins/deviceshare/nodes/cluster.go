// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/sharing"
)

// Reporter tells people about a problem, on the object that it concerns. It must not
// wait for the API server.
type Reporter interface {
	Report(object *corev1.ObjectReference, reason, message string)
}

// Cluster is every node of the last snapshot. One goroutine follows snapshots; Copy is
// for others.
type Cluster struct {
	backends sharing.Backends
	report   Reporter
	pods     *Pods
	// claims are nil where this scheduler allocates none.
	claims *claims.Registry
	// mu guards nodes against Copy. The goroutine that follows reads without it.
	mu       sync.RWMutex
	nodes    map[string]*Node
	reported map[Problem]struct{}
	// selecting is on how many nodes a pod accepts others by their labels or groups.
	selecting int
}

// NewCluster returns a cluster of which nothing is known. Problems are reported once
// each, not once per snapshot.
func NewCluster(b sharing.Backends, report Reporter) *Cluster {
	return &Cluster{backends: b, report: report, pods: newPods(), nodes: map[string]*Node{}, reported: map[Problem]struct{}{}}
}

// UseClaims has the cluster count what claims hold, too. It comes before the first Follow.
func (c *Cluster) UseClaims(r *claims.Registry) { c.claims = r }

// Pods returns the states of the cluster's pods. Safe for concurrent use.
func (c *Cluster) Pods() *Pods { return c.pods }

// Nodes returns the nodes of the last snapshot, by name, for the goroutine that
// follows. They must not be changed.
func (c *Cluster) Nodes() map[string]*Node { return c.nodes }

// Copy returns the nodes of the last snapshot, by name. The nodes never change, so the
// caller may take its time with them. Only the copying keeps a snapshot from being
// followed: a tenth of a millisecond for a thousand nodes. Safe for concurrent use.
func (c *Cluster) Copy() map[string]*Node {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.nodes)
}

// SelectsByName reports whether pods are there that accept others by their labels or groups, for
// the goroutine that follows.
func (c *Cluster) SelectsByName() bool { return c.selecting > 0 }

func (c *Cluster) countSelecting(n *Node, by int) {
	if n != nil && n.Ledger != nil && n.Ledger.SelectsByName() {
		c.selecting += by
	}
}

// Change is what a snapshot brought.
type Change struct {
	// Names says that nodes came or went, Nodes that any node changed.
	Names, Nodes bool
}

// Follow brings the cluster up to date with a snapshot, at a time: cordons end by themselves.
func (c *Cluster) Follow(snapshot Snapshot, settings *Settings, now time.Time) Change {
	c.pods.compareDecisions(snapshot)
	c.claims.WithdrawUnless(func(pod types.NamespacedName, uid types.UID, node string) bool {
		host := snapshot.Host(node)
		return host != nil && isPodOn(host, pod, uid)
	})
	fresh := c.readChangedNodes(snapshot, settings, now.UTC().Format(time.RFC3339))

	c.mu.Lock()
	defer c.mu.Unlock()
	lister := snapshot.Pods()
	c.pods.markAwaited(addedNodes(c.nodes, fresh), lister, settings)
	c.pods.compareAwaited(snapshot, lister)
	var change Change
	for _, n := range fresh {
		c.claims.Forget(n.claimsOver)
		old, known := c.nodes[n.Name]
		change.Names = change.Names || !known
		c.countSelecting(old, -1)
		c.countSelecting(n, 1)
		c.nodes[n.Name] = n
		c.pods.readFrom(n)
	}
	if len(c.nodes) > len(snapshot.Hosts()) {
		maps.DeleteFunc(c.nodes, func(name string, n *Node) bool {
			gone := snapshot.Host(name) == nil
			if gone {
				c.pods.noteNodeRemoved(name)
				c.countSelecting(n, -1)
			}
			return gone
		})
		change.Names = true
	}
	c.pods.compareBound(snapshot, lister)
	change.Nodes = change.Names || len(fresh) > 0
	c.reportProblems(fresh)
	return change
}

// reportProblems reports the problems of nodes that changed, each once until it is solved.
func (c *Cluster) reportProblems(fresh []*Node) {
	for _, n := range fresh {
		for p := range n.Problems() {
			if _, done := c.reported[p]; !done {
				c.reported[p] = struct{}{}
				c.report.Report(p.objectReference(), p.Reason, p.Message)
			}
		}
	}
	if len(fresh) == 0 || len(c.reported) == 0 {
		return
	}
	open := map[Problem]struct{}{}
	for _, n := range c.nodes {
		for p := range n.Problems() {
			open[p] = struct{}{}
		}
	}
	maps.DeleteFunc(c.reported, func(p Problem, _ struct{}) bool {
		_, still := open[p]
		return !still
	})
}
