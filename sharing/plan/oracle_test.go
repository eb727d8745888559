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
	"deviceshare/sharing/place"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/sharingtest/exhaustive"
)

// cluster is a small one, in words of its own: the oracle reads nothing else.
type cluster struct {
	nodes   []clusterNode
	pods    []clusterPod
	gangs   []clusterGang
	budgets []int
	givers  []clusterGiver
	wish    clusterWish
	// alike says that all pods cost the same.
	alike bool
	// selective says that pods do not accept all neighbours.
	selective bool
	// victims are the pods as the product sees them, nil for the protected.
	victims []*plan.Victim
}

type clusterNode struct {
	ledger        *sharing.Ledger
	cpu, capacity int64
	excluded      bool
}

type clusterPod struct {
	owner       sharing.Owner
	node        int
	level       int
	otherQueue  bool
	isProtected bool
	gang, role  int // gang -1 for none
	budgets     []int
	givers      []int
	gives       [2]int64
	turn        int
	cpu         int64
	grace, age  int64
	holds       int // devices
	near        clusterNear
}

type clusterGang struct {
	min   int
	roles []int // how many of each role it needs; nil if roles do not matter
}

// clusterGiver is a queue, or one above others, that may lose so much of two amounts.
type clusterGiver struct{ most [2]int64 }

type clusterWish struct {
	request *sharing.PodRequest
	near    clusterNear
	level   int
	cpu     int64
}

// price is what the oracle counts for a set of pods: levels from the highest, gangs, turns,
// grace, work, number.
type price [21]int64

// mask is a set of pods.
type mask uint64

func (m mask) has(i int) bool { return m&(1<<i) != 0 }

// mayLeave reports whether exactly these pods may leave for the wish.
func (c *cluster) mayLeave(m mask) bool {
	used, lost := make([]int, len(c.budgets)), make([][2]int64, len(c.givers))
	for i, p := range c.pods {
		if !m.has(i) {
			continue
		}
		if p.isProtected || p.level >= c.wish.level {
			return false
		}
		for _, b := range p.budgets {
			if used[b]++; used[b] > c.budgets[b] {
				return false
			}
		}
		for _, g := range p.givers {
			for r, n := range p.gives {
				if lost[g][r] += n; n > 0 && lost[g][r] > c.givers[g].most[r] {
					return false
				}
			}
		}
	}
	for g := range c.gangs {
		if whole, goesOn := c.gangAfter(g, m); !whole && !goesOn {
			return false
		}
	}
	return true
}

// gangAfter says of a gang whether none of it runs when these pods have left, and whether it is
// untouched or has enough left.
func (c *cluster) gangAfter(g int, m mask) (whole, goesOn bool) {
	left, leaving := 0, 0
	roles := make([]int, len(c.gangs[g].roles))
	for i, p := range c.pods {
		switch {
		case p.gang != g:
		case m.has(i):
			leaving++
		default:
			left++
			if len(roles) > 0 {
				roles[p.role]++
			}
		}
	}
	if leaving == 0 {
		return false, true
	}
	enough := left >= c.gangs[g].min
	for r, n := range c.gangs[g].roles {
		enough = enough && roles[r] >= n
	}
	return left == 0, enough && left > 0
}

// fits reports whether the wish fits a node without these pods.
func (c *cluster) fits(n int, m mask) bool {
	node := &c.nodes[n]
	cpu := node.cpu
	gone := map[sharing.Owner]bool{}
	for i, p := range c.pods {
		if p.node == n && m.has(i) {
			cpu += p.cpu
			gone[p.owner] = true
		}
	}
	if node.excluded || cpu < c.wish.cpu {
		return false
	}
	if c.wish.request == nil {
		return true
	}
	near := map[sharing.Owner]clusterNear{}
	for _, p := range c.pods {
		near[p.owner] = p.near
	}
	var held []exhaustive.Held
	devices := slices.Clone(node.ledger.Inventory().Devices)
	for d, v := range node.ledger.Views() {
		for _, h := range v.Held() {
			if !gone[h.Owner] {
				held = append(held, exhaustive.Held{Device: d, Kind: h.Kind, Share: h.Share})
				devices[d].Healthy = devices[d].Healthy && !c.wish.near.clashes(near[h.Owner])
			}
		}
	}
	return exhaustive.Fits(devices, held, c.wish.request)
}

// priceOf is what it costs when these pods leave.
func (c *cluster) priceOf(m mask) (p price) {
	for i, pod := range c.pods {
		if m.has(i) {
			p[15-pod.level]++
			p[17] += int64(pod.turn)
			p[18] = max(p[18], (pod.grace+29)/30)
			p[19] += min(pod.age, 3600) / 60 * int64(pod.holds)
			p[20]++
		}
	}
	for g := range c.gangs {
		if whole, goesOn := c.gangAfter(g, m); whole && !goesOn {
			p[16]++
		}
	}
	return p
}

// cheapest tries all sets of pods.
func (c *cluster) cheapest() (best price, found bool) {
	type weighed struct {
		m mask
		p price
	}
	var all []weighed
	for m := range mask(1) << len(c.pods) {
		if c.mayLeave(m) {
			all = append(all, weighed{m, c.priceOf(m)})
		}
	}
	slices.SortFunc(all, func(a, b weighed) int { return slices.Compare(a.p[:], b.p[:]) })
	local := make([]mask, len(c.nodes))
	for i, p := range c.pods {
		local[p.node] |= 1 << i
	}
	known := map[[2]uint64]bool{}
	for _, w := range all {
		for n := range c.nodes {
			key := [2]uint64{uint64(n), uint64(w.m & local[n])}
			fits, ok := known[key]
			if !ok {
				fits = c.fits(n, w.m)
				known[key] = fits
			}
			if fits {
				return w.p, true
			}
		}
	}
	return price{}, false
}

func costAsPrice(c *plan.Cost) (p price) {
	for i := range c.Lost {
		p[i] = int64(c.Lost[i])
	}
	p[16], p[17], p[18], p[19], p[20] = int64(c.Gangs), int64(c.Turns), int64(c.Grace), c.Work, int64(c.Pods)
	return p
}

func binpack() policy.Policy {
	p, _ := policy.Named("binpack")
	return p
}

// dice makes clusters.
type dice struct{ *rand.Rand }

func (d dice) oneOf(n ...int) int { return n[d.IntN(len(n))] }

// cluster makes a cluster of at most 3 nodes with 3 devices each, and 8 pods.
func (d dice) cluster(selective bool) *cluster {
	distinct := min(1, d.IntN(4))
	c := &cluster{alike: distinct == 0, selective: selective}
	for n := range 1 + d.IntN(3) {
		inv := sharingtest.Node(fmt.Sprint("n", n))
		for i := range d.oneOf(1, 2, 3, 3) {
			inv.Devices = append(inv.Devices, d.device(i))
		}
		cpu := int64(d.IntN(4))
		c.nodes = append(c.nodes, clusterNode{ledger: sharing.NewLedger(inv, factory.New()), cpu: cpu, capacity: cpu, excluded: d.IntN(12) == 0})
	}
	for range d.IntN(3) * distinct {
		g := clusterGang{min: 1 + d.IntN(4)}
		if d.IntN(4) == 0 {
			g.roles = []int{d.IntN(2), d.IntN(2)}
		}
		c.gangs = append(c.gangs, g)
	}
	for range d.IntN(3) * distinct {
		c.budgets = append(c.budgets, d.IntN(3))
	}
	for range d.IntN(3) * min(1, d.IntN(3)) {
		c.givers = append(c.givers, clusterGiver{most: [2]int64{int64(d.oneOf(-1, 0, 2, 4, 9)), int64(d.oneOf(0, 3, 3, 9))}})
	}
	levels := make([]int, len(c.gangs))
	for g := range levels {
		levels[g] = d.IntN(3)
	}
	for i := range 1 + d.IntN(8) {
		c.addPod(d, i, levels)
	}
	for _, n := range c.nodes {
		if devices := n.ledger.Inventory().Devices; d.IntN(4) == 0 {
			devices[d.IntN(len(devices))].Cordon = &sharing.Cordon{}
		}
	}
	c.wish = clusterWish{level: 1 + d.IntN(3), cpu: int64(d.IntN(4))}
	if d.IntN(8) > 0 {
		c.wish.request = sharingtest.Pod("wish")
		for i := range d.oneOf(1, 1, 1, 2) {
			c.wish.request.Requests = append(c.wish.request.Requests, d.request(fmt.Sprint("c", i), 3))
		}
		c.wish.request.OneNUMA = d.IntN(6) == 0
		if selective {
			c.wish.near = d.near()
			c.wish.request.Neighbours = c.wish.near.asRequested()
		}
	}
	return c
}

func (d dice) device(i int) sharing.Device {
	model := []string{"A30", "A30", "A100-40"}[d.IntN(3)]
	dev := sharingtest.Device(i, model, sharing.Modes()[d.IntN(4)])
	dev.NUMA = d.oneOf(-1, 0, 1, 0)
	if dev.Mode == sharing.MIG {
		if model != "A30" || d.IntN(2) == 0 {
			dev = sharingtest.Free(dev) // on an A100, one place can belong to two geometries
		}
	} else {
		dev.MaxShares = d.oneOf(10, 10, 2, 3)
	}
	return dev
}

func (d dice) request(container string, most int) sharing.Request {
	r := sharingtest.Ask(container, []int64{0, 1000, 5000, 6000, 11000, 12000, 20000}[d.IntN(7)], []sharing.Percent{0, 0, 25, 50, 100}[d.IntN(5)])
	if d.IntN(3) == 0 {
		r.Count = 1 + d.IntN(most)
		r.Even = d.IntN(6) == 0
	}
	return r
}

// addPod places a pod, with devices if they fit on a node that is tried.
func (c *cluster) addPod(d dice, i int, levels []int) {
	p := clusterPod{
		owner: sharing.Owner(fmt.Sprint("p", i)), node: d.IntN(len(c.nodes)), level: d.IntN(3), gang: -1, cpu: int64(d.IntN(3)),
		isProtected: d.IntN(8) == 0, grace: int64(d.oneOf(0, 30, 30, 31, 300)), age: int64(d.oneOf(600, 600, 600, 4000, d.IntN(5000))),
	}
	if c.alike {
		p.level, p.grace, p.age, p.cpu, p.isProtected = 0, 30, 600, 1, false
	}
	if len(c.gangs) > 0 && d.IntN(2) == 0 {
		p.gang = d.IntN(len(c.gangs))
		p.level = levels[p.gang]
		if roles := c.gangs[p.gang].roles; roles != nil {
			p.role = d.IntN(len(roles))
		}
	}
	for b := range c.budgets {
		if d.IntN(3) == 0 {
			p.budgets = append(p.budgets, b)
		}
	}
	p.gives = [2]int64{int64(d.IntN(4)), int64(d.IntN(3))}
	for g := range c.givers {
		if d.IntN(3) > 0 {
			p.givers = append(p.givers, g)
			p.turn = g
		}
	}
	if d.IntN(6) > 0 {
		node := &c.nodes[p.node]
		pod := sharingtest.Pod(string(p.owner), d.request("c", 2))
		if c.selective {
			p.near = d.near()
			pod.Neighbours = p.near.asRequested()
		}
		if placement, refused := place.Place(node.ledger.Views(), pod, factory.New(), binpack()); !refused.Refused() {
			if err := node.ledger.Reserve(p.owner, placement); err != nil {
				panic(err)
			}
			p.holds = pod.Requests[0].Count
		}
	}
	c.nodes[p.node].capacity += p.cpu
	c.pods = append(c.pods, p)
}

// world is the cluster as the product sees it.
func (c *cluster) world() (*plan.World, *plan.Wish) {
	budgets := make([]*plan.Budget, len(c.budgets))
	for i, n := range c.budgets {
		budgets[i] = &plan.Budget{Name: fmt.Sprint("b", i), Allowed: n}
	}
	givers := make([]*plan.Giver, len(c.givers))
	for i, g := range c.givers {
		givers[i] = &plan.Giver{Most: g.most[:]}
	}
	gangs := make([]*plan.Gang, len(c.gangs))
	for g := range gangs {
		gangs[g] = c.gang(g)
	}
	victims := make([][]*plan.Victim, len(c.nodes))
	c.victims = make([]*plan.Victim, len(c.pods))
	for i := range c.pods {
		p := &c.pods[i]
		if p.isProtected {
			if p.gang >= 0 {
				gangs[p.gang].Stays = true
			}
			continue
		}
		v := &plan.Victim{Owner: p.owner, Level: p.level, Takes: []int64{p.cpu}, Role: p.role, Grace: p.grace, Age: p.age, Turn: p.turn}
		for _, b := range p.budgets {
			v.Budgets = append(v.Budgets, budgets[b])
		}
		for _, g := range p.givers {
			v.Givers, v.Gives = append(v.Givers, givers[g]), p.gives[:]
		}
		if p.gang >= 0 {
			v.Gang = gangs[p.gang]
			v.Gang.Members = append(v.Gang.Members, v)
		}
		victims[p.node] = append(victims[p.node], v)
		c.victims[i] = v
	}
	w := &plan.World{}
	wish := &plan.Wish{Request: c.wish.request, Backends: factory.New(), Policy: binpack(), Takes: []int64{c.wish.cpu}, Level: c.wish.level}
	for i := range c.nodes {
		n := &c.nodes[i]
		w.Nodes = append(w.Nodes, plan.NewNode(fmt.Sprint("n", i), n.ledger.Views(), []int64{n.cpu}, []int64{n.capacity}, victims[i]))
		wish.Excluded = append(wish.Excluded, n.excluded)
	}
	return w, wish
}

// gang is a gang without members. One that has too few already can spare none.
func (c *cluster) gang(g int) *plan.Gang {
	running := 0
	roles := make([]int, len(c.gangs[g].roles))
	for _, p := range c.pods {
		if p.gang == g {
			running++
			if len(roles) > 0 {
				roles[p.role]++
			}
		}
	}
	made := &plan.Gang{Spare: max(0, running-max(1, c.gangs[g].min))}
	enough := running >= c.gangs[g].min
	for r, n := range c.gangs[g].roles {
		enough = enough && roles[r] >= n
		made.Roles = append(made.Roles, max(0, roles[r]-n))
	}
	if !enough {
		made.Spare = 0
	}
	return made
}

// check compares one answer with the oracle, and checks what must hold of every plan.
func (c *cluster) check(t *testing.T) (found, proven bool) {
	t.Helper()
	w, wish := c.world()
	p, no := plan.Find(w, wish)
	want, exists := c.cheapest()
	if no != nil {
		if exists && no.Proven {
			t.Fatalf("no plan, said to be proven: %+v; want %v\n%s", no, want, c)
		}
		return false, no.Proven
	}
	if !exists {
		t.Fatalf("plan %+v where no set of pods is enough\n%s", p.Cost, c)
	}
	m := c.maskOf(p.Evict)
	if got := costAsPrice(&p.Cost); got != c.priceOf(m) || p.Proven && got != want || slices.Compare(got[:], want[:]) < 0 {
		t.Fatalf("plan on n%d without %0*b costs %v, proven %v; want %v\n%s", p.Places[0].Node, len(c.pods), m, got, p.Proven, want, c)
	}
	c.checkPlan(t, &p, m)
	return true, p.Proven
}

func (c *cluster) maskOf(evict []*plan.Victim) (m mask) {
	for _, v := range evict {
		m |= 1 << slices.IndexFunc(c.pods, func(p clusterPod) bool { return p.owner == v.Owner })
	}
	return m
}

// checkPlan checks that a plan may be carried out, that each step leaves the nodes in order, and
// that no pod can be spared.
func (c *cluster) checkPlan(t *testing.T, p *plan.Plan, m mask) {
	t.Helper()
	if !c.mayLeave(m) || !c.fits(p.Places[0].Node, m) || bits.OnesCount64(uint64(m)) != len(p.Evict) {
		t.Fatalf("plan on n%d without %b: may leave %v, fits %v\n%s", p.Places[0].Node, m, c.mayLeave(m), c.fits(p.Places[0].Node, m), c)
	}
	for i := range c.pods {
		if less := m &^ (1 << i); m.has(i) && p.Proven && c.mayLeave(less) && c.fits(p.Places[0].Node, less) {
			t.Fatalf("plan on n%d without %b: p%d can be spared\n%s", p.Places[0].Node, m, i, c)
		}
	}
	ledgers := make([]*sharing.Ledger, len(c.nodes))
	for n := range ledgers {
		ledgers[n] = c.nodes[n].ledger.Fork()
	}
	for _, v := range p.Evict {
		for _, l := range ledgers {
			l.Release(v.Owner)
			if err := l.Check(); err != nil {
				t.Fatalf("after %s: %v\n%s", v.Owner, err, c)
			}
		}
	}
	if c.wish.request != nil {
		if err := ledgers[p.Places[0].Node].Reserve("wish", p.Places[0].Placement); err != nil {
			t.Fatalf("the placement does not fit: %v\n%s", err, c)
		}
	}
}
