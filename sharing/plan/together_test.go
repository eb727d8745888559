// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/sharingtest/exhaustive"
)

// team is a cluster in which several pods wait: the wish of the cluster so many times, and others.
type team struct {
	*cluster
	times int
	other []clusterWish
	// lacks is what the queue lacks, and frees how much of it each pod frees.
	lacks []int64
	frees [][]int64
}

func (d dice) team() *team {
	t := &team{cluster: d.cluster(false), times: 1 + d.IntN(3)}
	if d.IntN(3) == 0 {
		other := clusterWish{level: t.wish.level, cpu: int64(d.IntN(4))}
		if d.IntN(8) > 0 {
			other.request = sharingtest.Pod("other", d.request("c", 2))
		}
		t.other = append(t.other, other)
		t.times = min(t.times, 2)
	}
	if d.IntN(3) == 0 {
		t.lacks = []int64{int64(d.IntN(4)), int64(d.oneOf(0, 0, 3, 5))}
	}
	for range t.pods {
		t.frees = append(t.frees, []int64{int64(d.IntN(3)), int64(d.IntN(4))})
	}
	return t
}

// hasEnough reports whether these pods free what the queue lacks.
func (t *team) hasEnough(m mask) bool {
	for r, lacks := range t.lacks {
		for i := range t.pods {
			if m.has(i) {
				lacks -= t.frees[i][r]
			}
		}
		if lacks > 0 {
			return false
		}
	}
	return true
}

// all are the pods that wait.
func (t *team) all() (all []clusterWish) {
	for range t.times {
		all = append(all, t.wish)
	}
	return append(all, t.other...)
}

// fitOn reports whether pods fit a node together without others.
func (t *team) fitOn(n int, pods []clusterWish, m mask) bool {
	node := &t.nodes[n]
	cpu := node.cpu
	gone := map[sharing.Owner]bool{}
	for i, p := range t.pods {
		if p.node == n && m.has(i) {
			cpu += p.cpu
			gone[p.owner] = true
		}
	}
	var requests []*sharing.PodRequest
	for _, p := range pods {
		if cpu -= p.cpu; p.request != nil {
			requests = append(requests, p.request)
		}
	}
	asks := slices.ContainsFunc(pods, func(p clusterWish) bool { return p.cpu > 0 })
	if node.excluded || asks && cpu < 0 {
		return false
	}
	var held []exhaustive.Held
	for d, v := range node.ledger.Views() {
		for _, h := range v.Held() {
			if !gone[h.Owner] {
				held = append(held, exhaustive.Held{Device: d, Kind: h.Kind, Share: h.Share})
			}
		}
	}
	return exhaustive.FitTogether(node.ledger.Inventory().Devices, held, requests)
}

// fitTogether tries all ways to give pods to nodes. Known has what was found out before.
func (t *team) fitTogether(pods []clusterWish, m mask, known map[string]bool) bool {
	ways := 1
	for range pods {
		ways *= len(t.nodes)
	}
	local := make([]mask, len(t.nodes))
	for i, p := range t.pods {
		local[p.node] |= 1 << i
	}
	for way := range ways {
		on := make([][]clusterWish, len(t.nodes))
		which := make([]int, len(t.nodes))
		for i, rest := 0, way; i < len(pods); i++ {
			n := rest % len(t.nodes)
			on[n], which[n] = append(on[n], pods[i]), which[n]|1<<i
			rest /= len(t.nodes)
		}
		fits := true
		for n := 0; fits && n < len(on); n++ {
			if len(on[n]) == 0 {
				continue
			}
			key := fmt.Sprint(n, which[n], m&local[n])
			ok, is := known[key]
			if !is {
				ok = t.fitOn(n, on[n], m)
				known[key] = ok
			}
			fits = ok
		}
		if fits {
			return true
		}
	}
	return false
}

// cheapest tries all sets of pods that may leave.
func (t *team) cheapest() (best price, found bool) {
	known := map[string]bool{}
	for m := range mask(1) << len(t.pods) {
		if !t.mayLeave(m) || !t.hasEnough(m) {
			continue
		}
		if p := t.priceOf(m); (!found || slices.Compare(p[:], best[:]) < 0) && t.fitTogether(t.all(), m, known) {
			best, found = p, true
		}
	}
	return best, found
}

// wishes are those of the product.
func (t *team) wishes(first *plan.Wish) (all []*plan.Wish) {
	for range t.times {
		all = append(all, first)
	}
	for _, o := range t.other {
		all = append(all, &plan.Wish{Request: o.request, Backends: factory.New(), Policy: binpack(), Takes: []int64{o.cpu}, Level: first.Level, Excluded: first.Excluded})
	}
	return all
}

// check compares one answer with the oracle. It returns how many pods leave, and how many would do.
func (t *team) check(tt *testing.T) (found, proven bool, evicted, least int64) {
	tt.Helper()
	w, wish := t.world()
	w.Lacks = t.lacks
	for i := range t.frees {
		if v := t.victims[i]; v != nil {
			v.Frees = t.frees[i]
		}
	}
	p, no := plan.FindTogether(w, t.wishes(wish))
	want, exists := t.cheapest()
	if no != nil {
		if exists && no.Proven {
			tt.Fatalf("no plan, said to be proven: %+v; want %v\n%s", no, want, t)
		}
		return false, no.Proven, 0, want[20]
	}
	if !exists {
		tt.Fatalf("plan %+v where no set of pods is enough\n%s", p.Cost, t)
	}
	m := t.maskOf(p.Evict)
	if got := costAsPrice(&p.Cost); got != t.priceOf(m) || p.Proven && got != want || slices.Compare(got[:], want[:]) < 0 {
		tt.Fatalf("plan %v without %0*b costs %v, proven %v; want %v\n%s", nodesOf(&p), len(t.pods), m, got, p.Proven, want, t)
	}
	t.checkPlan(tt, &p, m)
	return true, p.Proven, int64(len(p.Evict)), want[20]
}

func nodesOf(p *plan.Plan) (nodes []int) {
	for _, place := range p.Places {
		nodes = append(nodes, place.Node)
	}
	return nodes
}

// checkPlan checks that a plan may be carried out, that each step leaves the nodes in order, and
// that all pods get what they ask for.
func (t *team) checkPlan(tt *testing.T, p *plan.Plan, m mask) {
	tt.Helper()
	if !t.mayLeave(m) || !t.hasEnough(m) || bits.OnesCount64(uint64(m)) != len(p.Evict) || len(p.Places) != len(t.all()) {
		tt.Fatalf("plan %v without %b: may leave %v\n%s", nodesOf(p), m, t.mayLeave(m), t)
	}
	ledgers := make([]*sharing.Ledger, len(t.nodes))
	for n := range ledgers {
		ledgers[n] = t.nodes[n].ledger.Fork()
	}
	for _, v := range p.Evict {
		for _, l := range ledgers {
			l.Release(v.Owner)
		}
	}
	on := make([][]clusterWish, len(t.nodes))
	all := t.all()
	for _, i := range p.Order {
		wish, place := all[i], &p.Places[i]
		on[place.Node] = append(on[place.Node], wish)
		if wish.request == nil {
			continue
		}
		if err := ledgers[place.Node].Reserve(sharing.Owner(fmt.Sprint("wish", i)), place.Placement); err != nil {
			tt.Fatalf("placement %d does not fit: %v\n%s", i, err, t)
		}
	}
	for n := range on {
		if err := ledgers[n].Check(); err != nil {
			tt.Fatalf("n%d: %v\n%s", n, err, t)
		}
		if len(on[n]) > 0 && !t.fitOn(n, on[n], m) {
			tt.Fatalf("plan %v without %b does not fit n%d\n%s", nodesOf(p), m, n, t)
		}
	}
}

func (t *team) String() string {
	return fmt.Sprintf("%d times, and %+v; lacks %v, frees %v\n%s", t.times, t.other, t.lacks, t.frees, t.cluster)
}

// Random clusters and up to three pods that start together, against all sets of pods, all nodes and
// all layouts.
func TestPlansForPodsThatStartTogether(t *testing.T) {
	n := max(1000, clusters(t)/20) // each has many more combinations
	plans, missed, proven, dearer := 0, 0, 0, 0
	evicted, least := int64(0), int64(0)
	for seed := range n {
		c := dice{rand.New(rand.NewPCG(uint64(seed), 17))}.team()
		found, sure, some, few := c.check(t)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		if found {
			evicted, least = evicted+some, least+few
		}
		switch {
		case found:
			plans++
		case few > 0:
			missed++
		}
		if found && some > few {
			dearer++
		}
		if sure {
			proven++
		}
	}
	t.Logf("%d clusters: %d plans, %d missed, %d answers proven; %d pods leave, %d in the cheapest plans, more in %d plans",
		n, plans, missed, proven, evicted, least, dearer)
	if plans < n/5 || n-plans < n/5 || proven < n/4 {
		t.Errorf("%d plans and %d proven answers of %d clusters: want more", plans, proven, n)
	}
}
