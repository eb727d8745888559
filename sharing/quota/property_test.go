// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/quota"
	"deviceshare/sharing/sharingtest"
)

// cluster is random queues, each below an earlier one, and quotas of namespaces, and who runs in
// them, kept in the plainest way: one line for each pod.
type cluster struct {
	parents []int // -1 for none
	caps    [][3]int64
	quotas  [][3]int64
	rows    []row
}

type row struct {
	owner         string
	queue         int
	quotas        []int // those that hold for the pod
	memory, cores int64
	model         string
	tenure        quota.Tenure
}

func queueName(i int) string { return fmt.Sprintf("q%d", i) }

func (r *row) account(b *quota.Book) quota.Account {
	var keys []string
	for _, i := range r.quotas {
		keys = append(keys, (&quota.NamespaceQuota{Namespace: "team", Name: fmt.Sprint(i)}).Key())
	}
	return b.Account(queueName(r.queue), keys...)
}

// isBelow reports whether a pod runs in a queue, in whatever depth.
func (c *cluster) isBelow(r *row, queue int) bool {
	for q := r.queue; q >= 0; q = c.parents[q] {
		if q == queue {
			return true
		}
	}
	return false
}

// exceeds is the dumb sum: every line that counts, but for lines of one tenure, and those that ask.
func (c *cluster) exceeds(most [3]int64, counts func(*row) bool, asks []row, leaving map[string]bool, but quota.Tenure) bool {
	var used, asked [3]int64
	add := func(to *[3]int64, r *row) {
		to[0], to[1] = to[0]+r.memory, to[1]+r.cores
		if r.model == "Big 80" {
			to[2] += r.memory
		}
	}
	for i := range c.rows {
		if r := &c.rows[i]; counts(r) && !leaving[r.owner] && r.tenure != but {
			add(&used, r)
		}
	}
	for i := range asks {
		if counts(&asks[i]) {
			add(&asked, &asks[i])
		}
	}
	for i := range most {
		if most[i] >= 0 && asked[i] > 0 && used[i]+asked[i] > most[i] {
			return true
		}
	}
	return false
}

// fits is the dumb answer: later, without pods that leave, or now, without pods that arrive.
func (c *cluster) fits(asks []row, leaving map[string]bool, but quota.Tenure) bool {
	for q, most := range c.caps {
		if c.exceeds(most, func(r *row) bool { return c.isBelow(r, q) }, asks, leaving, but) {
			return false
		}
	}
	for i, most := range c.quotas {
		if c.exceeds(most, func(r *row) bool { return slices.Contains(r.quotas, i) }, asks, leaving, but) {
			return false
		}
	}
	return true
}

// randomLimits are limits as a row of numbers, -1 for none, and as what they are written as.
func randomLimits(r *rand.Rand) (caps [3]int64, text string) {
	caps = [3]int64{-1, -1, -1}
	for k, name := range []string{"memory", "cores", "memory.big"} {
		if r.IntN(2) == 0 {
			caps[k] = r.Int64N(400)
			text += fmt.Sprintf(" %s=%d", name, caps[k])
		}
	}
	return caps, text
}

// randomCluster has up to eight queues and three quotas.
func randomCluster(t *testing.T, r *rand.Rand) (cluster, *quota.Book) {
	c := cluster{}
	var queues []quota.Queue
	var quotas []quota.NamespaceQuota
	for i := range 1 + r.IntN(8) {
		caps, text := randomLimits(r)
		c.parents, c.caps = append(c.parents, r.IntN(i+1)-1), append(c.caps, caps)
		q := quota.Queue{Name: queueName(i), Capability: limits(t, text)}
		if c.parents[i] >= 0 {
			q.Parent = queueName(c.parents[i])
		}
		queues = append(queues, q)
	}
	for i := range r.IntN(4) {
		caps, text := randomLimits(r)
		c.quotas = append(c.quotas, caps)
		quotas = append(quotas, quota.NamespaceQuota{Namespace: "team", Name: fmt.Sprint(i), Limits: limits(t, text)})
	}
	r.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
	return c, quota.NewBook(quota.NewHierarchy(queues, nil, quotas...))
}

// randomRow is a pod that asks, or takes.
func (c *cluster) randomRow(r *rand.Rand, owner string, queue int) row {
	one := row{owner: owner, queue: queue, memory: r.Int64N(60), cores: r.Int64N(60),
		model: []string{"Big 80", "Small"}[r.IntN(2)], tenure: []quota.Tenure{quota.Stays, quota.Stays, quota.Leaves, quota.Arrives}[r.IntN(4)]}
	for i := range c.quotas {
		if r.IntN(2) == 0 {
			one.quotas = append(one.quotas, i)
		}
	}
	return one
}

func (r *row) takes() quota.Amounts {
	return quota.Amounts{{Model: r.model, Memory: r.memory * gib, Cores: r.cores}}
}

// isCovered reports whether the end of some pods frees what a queue lacks.
func isCovered(b *quota.Book, lacks []int64, gone []sharing.Owner, account quota.Account) bool {
	for i := range lacks {
		for _, o := range gone {
			lacks[i] -= b.Frees(o, account)[i]
		}
		if lacks[i] > 0 {
			return false
		}
	}
	return true
}

func TestRandomHierarchiesAgreeWithADumbSum(t *testing.T) {
	refused, admitted, byNamespace := 0, 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, b := randomCluster(t, r)
		for step := range 60 {
			asks := []row{c.randomRow(r, fmt.Sprint(step), r.IntN(len(c.parents)))}
			for i := range r.IntN(6) - 3 {
				asks = append(asks, c.randomRow(r, fmt.Sprint(step, "and", i), asks[0].queue))
			}
			now := r.IntN(2) == 0
			leaving, gone := map[string]bool{}, []sharing.Owner(nil)
			for _, x := range c.rows {
				if r.IntN(6) == 0 {
					leaving[x.owner] = true
					gone = append(gone, sharing.Owner(x.owner))
				}
			}
			var together, before []quota.Ask
			joined := asks[0].account(b)
			for i := range asks {
				ask := quota.Ask{Owner: sharing.Owner(asks[i].owner), Account: asks[i].account(b), Amounts: asks[i].takes(), Now: now}
				before, joined = append(before, ask), joined.Joined(ask.Account)
				ask.Gone = gone
				together = append(together, ask)
			}
			short, no := b.CheckTogether(joined, together...)
			if want := !c.fits(asks, leaving, quota.Leaves) || now && !c.fits(asks, leaving, quota.Arrives); no != want {
				t.Fatalf("seed %d step %d: refused %v, want %v: %s", seed, step, no, want, short.String())
			}
			if no && (short.Excess() <= 0 || short.Excess() != short.Used+short.Asked-short.Limit.Amount || !strings.Contains(short.String(), short.Queue+short.Quota)) {
				t.Fatalf("seed %d step %d: %+v", seed, step, short)
			}
			if got, want := isCovered(b, b.Lacks(joined, before...), gone, joined), c.fits(asks, leaving, quota.Leaves); got != want {
				t.Fatalf("seed %d step %d: lacks %v, covered by %v: %v, want %v", seed, step, b.Lacks(joined, before...), gone, got, want)
			}
			switch {
			case no && short.Namespace != "":
				byNamespace++
				fallthrough
			case no:
				refused++
			default:
				admitted++
			}
			switch {
			case len(gone) == 0 && !no || r.IntN(3) == 0: // also what does not fit: facts from outside
				for i := range asks {
					c.rows = append(c.rows, asks[i])
					b.Put(sharing.Owner(asks[i].owner), asks[i].account(b), asks[i].takes(), asks[i].tenure)
				}
			case len(c.rows) > 0:
				i := r.IntN(len(c.rows))
				b.Drop(sharing.Owner(c.rows[i].owner))
				c.rows = append(c.rows[:i], c.rows[i+1:]...)
			}
		}
		c.checkEmptied(t, b, seed)
	}
	if refused < 1000 || admitted < 1000 || byNamespace < 300 {
		t.Errorf("%d refused, %d of them by a namespace, and %d admitted: this shows little", refused, byNamespace, admitted)
	}
}

// checkEmptied takes everybody out again: nothing is left of them.
func (c *cluster) checkEmptied(t *testing.T, b *quota.Book, seed uint64) {
	for _, x := range c.rows {
		b.Drop(sharing.Owner(x.owner))
	}
	if short, no := b.Check(&quota.Ask{Account: b.Account("q0"), Amounts: amounts("Big 80", 0, 0)}); no {
		t.Fatalf("seed %d: nobody asks for anything and is refused: %s", seed, short.String())
	}
	for i, most := range c.caps {
		if most[0] > 0 && c.parents[i] < 0 {
			if short, no := b.Check(&quota.Ask{Account: b.Account(queueName(i)), Amounts: quota.Amounts{{Model: "Small", Memory: most[0] * gib}}}); no {
				t.Fatalf("seed %d: an empty queue refuses all of its capability: %s", seed, short.String())
			}
		}
	}
	for i, most := range c.quotas {
		all := row{queue: 0, quotas: []int{i}}
		ask := quota.Ask{Account: all.account(b), Amounts: quota.Amounts{{Model: "Small", Memory: most[0] * gib}}}
		if short, no := b.Check(&ask); most[0] > 0 && no && short.Namespace != "" {
			t.Fatalf("seed %d: an empty namespace refuses all that it was given: %s", seed, short.String())
		}
	}
}

func TestPuttingAPodDownTwiceCountsItOnce(t *testing.T) {
	h := quota.NewHierarchy([]quota.Queue{{Name: "q", Capability: limits(t, "memory=10")}, {Name: "r", Capability: limits(t, "memory=10")}}, nil)
	b := quota.NewBook(h)
	for range 5 {
		b.Put("p", b.Account("q"), amounts("Big", 10, 0), quota.Stays)
	}
	b.Put("p", b.Account("r"), amounts("Big", 9, 0), quota.Stays)
	if got := b.Takes("p"); !same(got, amounts("Big", 9, 0)) {
		t.Errorf("the pod takes %+v", got)
	}
	for queue, memory := range map[string]int64{"q": 10, "r": 1} {
		if short, no := b.Check(&quota.Ask{Owner: "new", Account: b.Account(queue), Amounts: amounts("Big", memory, 0)}); no {
			t.Errorf("%s", short.String())
		}
	}
	b.Drop("p")
	b.Drop("p")
	if _, no := b.Check(&quota.Ask{Owner: "new", Account: b.Account("r"), Amounts: amounts("Big", 11, 0)}); !no {
		t.Error("dropping a pod twice makes room")
	}
}

// What is known before there is a placement must never be more than what the placement takes, or
// a pod would wait for ever that fits.
func TestWhatIsAskedIsNeverMoreThanWhatIsHeld(t *testing.T) {
	backends, placed, equal := factory.New(), 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		var devices []sharing.Device
		for i := range 1 + r.IntN(5) {
			model := []string{"T4", "A30", "A100-40", "A100-80", "H100"}[r.IntN(5)]
			mode := sharing.Modes()[r.IntN(4)]
			if model == "T4" {
				mode = sharing.HAMiCore
			}
			d := sharingtest.Device(i, model, mode)
			if mode == sharing.MIG && r.IntN(2) == 0 {
				d = sharingtest.BestFit(d)
			}
			if there := d.Memory; mode != sharing.MIG && r.IntN(3) == 0 {
				d.Memory, d.Physical, d.Cores = []sharing.Bytes{there / 2, 2 * there}[r.IntN(2)], there, []sharing.Percent{40, 100, 150}[r.IntN(3)]
			}
			devices = append(devices, d)
		}
		inv := sharingtest.Node("n", devices...)
		pod := sharing.PodRequest{Owner: "p"}
		if r.IntN(4) == 0 {
			pod.Neighbours = &sharing.Neighbours{Accepts: sharing.AcceptsNone}
		}
		for i := range 1 + r.IntN(3) {
			memory := sharing.WholeMemory()
			switch r.IntN(3) {
			case 0:
				memory = sharing.AbsoluteMemory(sharing.MiBs(1 + r.Int64N(12000)))
			case 1:
				memory = sharing.PercentMemory(sharing.Percent(1 + r.IntN(100)))
			}
			pod.Requests = append(pod.Requests, sharing.Request{
				Container: fmt.Sprint(i), Kind: []sharing.ContainerKind{sharing.Init, sharing.App, sharing.Sidecar}[r.IntN(3)],
				Count: 1 + r.IntN(2), Memory: memory, Cores: sharing.Percent(r.IntN(3) * 25),
			})
		}
		views := sharing.NewLedger(inv, backends).Views()
		p, _ := policy.Named("binpack")
		placement, refused := place.Place(views, &pod, backends, p)
		if refused.Refused() {
			continue
		}
		placed++
		asked, held := quota.Asked(&pod, quota.KindsOf(inv)), quota.Held(&placement, inv)
		var memory, cores, number int64
		for _, part := range held {
			memory, cores, number = memory+part.Memory, cores+part.Cores, number+part.Number
		}
		if asked[0].Memory > memory || asked[0].Cores > cores || asked[0].Number > number {
			t.Fatalf("seed %d: asked %+v, held %+v\n%+v\n%+v", seed, asked, held, pod.Requests, placement)
		}
		if asked[0].Memory == memory && asked[0].Cores == cores {
			equal++
		}
	}
	if placed < 500 || equal < 100 {
		t.Errorf("%d pods placed, %d take what they asked at least: this shows little", placed, equal)
	}
}
