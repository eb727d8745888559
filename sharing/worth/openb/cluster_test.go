// SPDX-License-Identifier: Apache-2.0

// Package openb_test places workloads of the form of the openb trace with the domain alone, beside
// published rules.
package openb_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest/trace"
	"deviceshare/sharing/worth"
)

// cluster places with the product's domain: the policy fragmentation and its learning, and ties
// in the order of the nodes.
type cluster struct {
	tb       testing.TB
	backends sharing.Backends
	nodes    []*host
	classes  map[worth.Class]int
	arrivals worth.Arrivals
	model    *worth.Model
	placed   int
	// scores are what nodes scored for a kind. They are kept as long as neither the node nor the
	// model changes, since the same arguments give the same score.
	scores map[worth.Kind][]float64
}

type host struct {
	ledger  *sharing.Ledger
	free    worth.Amounts
	devices int
}

// unknown is a score that must be asked for, no a node that the pod does not fit.
const unknown, no = 1e9, -1e9

func newCluster(tb testing.TB, nodes []trace.Node) *cluster {
	c := &cluster{tb: tb, backends: factory.New(), classes: map[worth.Class]int{}, scores: map[worth.Kind][]float64{}}
	for _, n := range nodes {
		inv := &sharing.Inventory{Node: n.Name}
		for i := range n.Devices {
			d := sharing.Device{
				ID: sharing.DeviceID(fmt.Sprintf("%s-%d", n.Name, i)), Index: i, Model: n.Model, Memory: 16 * sharing.GiB,
				Cores: 100, MaxShares: 20, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
			}
			inv.Devices = append(inv.Devices, d)
			c.classes[worth.ClassOf(&d)]++
		}
		c.nodes = append(c.nodes, &host{
			ledger: sharing.NewLedger(inv, c.backends), devices: n.Devices,
			free: worth.Amounts{CPU: float64(n.CPU), Memory: float64(n.Memory) * float64(sharing.MiB)},
		})
	}
	return c
}

// request is what a pod of the trace asks for; nil without devices.
func request(owner string, p *trace.Pod) *sharing.PodRequest {
	if p.Devices == 0 {
		return nil
	}
	r := sharing.Request{Container: "main", Count: p.Devices, Cores: 100}
	if p.Share < 1000 {
		z := sharing.Percent((p.Share + 9) / 10)
		r.Memory, r.Cores = sharing.PercentMemory(z), z
	}
	return &sharing.PodRequest{Owner: sharing.Owner(owner), Requests: []sharing.Request{r}, Selector: sharing.Selector{UseModels: p.Models}}
}

func (c *cluster) hosts() iter.Seq[worth.Host] {
	return func(yield func(worth.Host) bool) {
		for _, n := range c.nodes {
			if !yield(worth.Host{Views: n.ledger.Views(), Free: n.free}) {
				return
			}
		}
	}
}

// learn takes note of a pod that arrived.
func (c *cluster) learn(owner string, k worth.Kind) {
	c.arrivals.Note(sharing.Owner(owner), k)
	switch {
	case c.arrivals.Due():
		c.model = worth.NewModel(c.arrivals.Mix(), c.classes)
	case c.placed%200 != 199:
		return
	}
	c.placed++
	c.model, _ = c.model.Weigh(c.hosts())
	clear(c.scores)
}

// Take implements trace.Rule.
func (c *cluster) Take(p *trace.Pod) bool {
	_, placed := c.place(p)
	return placed
}

// place gives a pod a node, and returns which, if any has room.
func (c *cluster) place(p *trace.Pod) (node int, placed bool) {
	owner := fmt.Sprint(c.arrivals.Len())
	pod := request(owner, p)
	needs := worth.Amounts{CPU: float64(p.CPU), Memory: float64(p.Memory) * float64(sharing.MiB)}
	kind := worth.KindOf(pod, needs)
	c.learn(owner, kind)
	pack := policy.Fragmentation(c.model)
	scores, ok := c.scores[kind]
	if !ok {
		scores = slices.Repeat([]float64{unknown}, len(c.nodes))
		c.scores[kind] = scores
	}
	best := -1
	for i, n := range c.nodes {
		if n.free.CPU < needs.CPU || n.free.Memory < needs.Memory || n.devices < p.Devices {
			continue
		}
		if scores[i] == unknown {
			scores[i] = no
			if points, ok := place.Score(worth.Host{Views: n.ledger.Views(), Free: n.free}, pod, needs, c.backends, pack); ok {
				scores[i] = points
			}
		}
		if scores[i] != no && (best < 0 || scores[i] > scores[best]) {
			best = i
		}
	}
	if best < 0 {
		return best, false
	}
	n := c.nodes[best]
	if pod != nil {
		placement, refused := place.Place(n.ledger.Views(), pod, c.backends, pack)
		if refused.Refused() {
			c.tb.Fatalf("the node scored and refuses: %s", refused.String())
		}
		if err := n.ledger.Reserve(pod.Owner, placement); err != nil {
			c.tb.Fatal(err)
		}
	}
	n.free = n.free.Less(needs)
	c.placed++
	for _, s := range c.scores {
		s[best] = unknown
	}
	return best, true
}
