// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/quota"
	"deviceshare/sharing/sharingtest"
)

// cluster is random queues, each below an earlier one, and who runs in them, kept in the plainest
// way: one line for each pod.
type cluster struct {
	parents []int // -1 for none
	caps    [][3]int64
	rows    []row
}

type row struct {
	owner         string
	queue         int
	memory, cores int64
	model         string
	tenure        quota.Tenure
}

func queueName(i int) string { return fmt.Sprintf("q%d", i) }

// sum is the dumb sum: every line of every queue that hangs below, in whatever depth, but for lines
// of one tenure.
func (c *cluster) sum(queue int, leaving map[string]bool, but quota.Tenure) (memory, cores, big int64) {
	for _, r := range c.rows {
		below := false
		for q := r.queue; q >= 0; q = c.parents[q] {
			below = below || q == queue
		}
		if !below || leaving[r.owner] || r.tenure == but {
			continue
		}
		memory, cores = memory+r.memory, cores+r.cores
		if r.model == "Big 80" {
			big += r.memory
		}
	}
	return memory, cores, big
}

// fits is the dumb answer: later, without pods that leave, or now, without pods that arrive.
func (c *cluster) fits(asks row, leaving map[string]bool, but quota.Tenure) bool {
	for q := asks.queue; q >= 0; q = c.parents[q] {
		memory, cores, big := c.sum(q, leaving, but)
		askBig := int64(0)
		if asks.model == "Big 80" {
			askBig = asks.memory
		}
		for i, n := range [3][2]int64{{memory, asks.memory}, {cores, asks.cores}, {big, askBig}} {
			if most := c.caps[q][i]; most >= 0 && n[1] > 0 && n[0]+n[1] > most {
				return false
			}
		}
	}
	return true
}

// isCovered reports whether the end of some pods frees what a queue lacks.
func isCovered(b *quota.Book, lacks []int64, gone []sharing.Owner, queue string) bool {
	for i := range lacks {
		for _, o := range gone {
			lacks[i] -= b.Frees(o, queue)[i]
		}
		if lacks[i] > 0 {
			return false
		}
	}
	return true
}

func TestRandomHierarchiesAgreeWithADumbSum(t *testing.T) {
	refused, admitted := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := cluster{}
		var queues []quota.Queue
		for i := range 1 + r.IntN(8) {
			c.parents = append(c.parents, r.IntN(i+1)-1)
			caps, text := [3]int64{-1, -1, -1}, ""
			for k, name := range []string{"memory", "cores", "memory.big"} {
				if r.IntN(2) == 0 {
					caps[k] = r.Int64N(400)
					text += fmt.Sprintf(" %s=%d", name, caps[k])
				}
			}
			caps[0], caps[2] = max(caps[0], -1), max(caps[2], -1)
			c.caps = append(c.caps, caps)
			q := quota.Queue{Name: queueName(i), Capability: limits(t, text)}
			if c.parents[i] >= 0 {
				q.Parent = queueName(c.parents[i])
			}
			queues = append(queues, q)
		}
		r.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
		b := quota.NewBook(quota.NewHierarchy(queues, nil))
		for step := range 60 {
			asks := row{owner: fmt.Sprint(step), queue: r.IntN(len(queues)), memory: r.Int64N(60), cores: r.Int64N(60), model: []string{"Big 80", "Small"}[r.IntN(2)], tenure: []quota.Tenure{quota.Stays, quota.Stays, quota.Leaves, quota.Arrives}[r.IntN(4)]}
			now := r.IntN(2) == 0
			takes := quota.Amounts{{Model: asks.model, Memory: asks.memory * gib, Cores: asks.cores}}
			leaving, gone := map[string]bool{}, []sharing.Owner(nil)
			for _, x := range c.rows {
				if r.IntN(6) == 0 {
					leaving[x.owner] = true
					gone = append(gone, sharing.Owner(x.owner))
				}
			}
			short, no := b.Check(&quota.Ask{Owner: sharing.Owner(asks.owner), Queue: queueName(asks.queue), Amounts: takes, Gone: gone, Now: now})
			if want := !c.fits(asks, leaving, quota.Leaves) || now && !c.fits(asks, leaving, quota.Arrives); no != want {
				t.Fatalf("seed %d step %d: refused %v, want %v: %s", seed, step, no, want, short.String())
			}
			if no && (short.Excess() <= 0 || short.Excess() != short.Used+short.Asked-short.Limit.Amount || !strings.Contains(short.String(), short.Queue)) {
				t.Fatalf("seed %d step %d: %+v", seed, step, short)
			}
			lacks := b.Lacks(&quota.Ask{Owner: sharing.Owner(asks.owner), Queue: queueName(asks.queue), Amounts: takes})
			if got, want := isCovered(b, lacks, gone, queueName(asks.queue)), c.fits(asks, leaving, quota.Leaves); got != want {
				t.Fatalf("seed %d step %d: lacks %v, covered by %v: %v, want %v", seed, step, lacks, gone, got, want)
			}
			if no {
				refused++
			} else {
				admitted++
			}
			switch {
			case len(gone) == 0 && !no || r.IntN(3) == 0: // also what does not fit: facts from outside
				c.rows = append(c.rows, asks)
				b.Put(sharing.Owner(asks.owner), queueName(asks.queue), takes, asks.tenure)
			case len(c.rows) > 0:
				i := r.IntN(len(c.rows))
				b.Drop(sharing.Owner(c.rows[i].owner))
				c.rows = append(c.rows[:i], c.rows[i+1:]...)
			}
		}
		for _, x := range c.rows {
			b.Drop(sharing.Owner(x.owner))
		}
		if short, no := b.Check(&quota.Ask{Queue: "q0", Amounts: amounts("Big 80", 0, 0)}); no {
			t.Fatalf("seed %d: nobody asks for anything and is refused: %s", seed, short.String())
		}
		for i, most := range c.caps {
			if most[0] > 0 && c.parents[i] < 0 {
				if short, no := b.Check(&quota.Ask{Queue: queueName(i), Amounts: quota.Amounts{{Model: "Small", Memory: most[0] * gib}}}); no {
					t.Fatalf("seed %d: an empty queue refuses all of its capability: %s", seed, short.String())
				}
			}
		}
	}
	if refused < 1000 || admitted < 1000 {
		t.Errorf("%d refused and %d admitted: this shows little", refused, admitted)
	}
}

func TestPuttingAPodDownTwiceCountsItOnce(t *testing.T) {
	h := quota.NewHierarchy([]quota.Queue{{Name: "q", Capability: limits(t, "memory=10")}, {Name: "r", Capability: limits(t, "memory=10")}}, nil)
	b := quota.NewBook(h)
	for range 5 {
		b.Put("p", "q", amounts("Big", 10, 0), quota.Stays)
	}
	b.Put("p", "r", amounts("Big", 9, 0), quota.Stays)
	if got := b.Takes("p"); !same(got, amounts("Big", 9, 0)) {
		t.Errorf("the pod takes %+v", got)
	}
	for queue, memory := range map[string]int64{"q": 10, "r": 1} {
		if short, no := b.Check(&quota.Ask{Owner: "new", Queue: queue, Amounts: amounts("Big", memory, 0)}); no {
			t.Errorf("%s", short.String())
		}
	}
	b.Drop("p")
	b.Drop("p")
	if _, no := b.Check(&quota.Ask{Owner: "new", Queue: "r", Amounts: amounts("Big", 11, 0)}); !no {
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
