// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/sharingtest/exhaustive"
)

// dice reads choices from bytes, so that the same code serves random tests and
// fuzzing. When the bytes end every choice is the first.
type dice []byte

func (d *dice) of(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}

// question is one small placing problem.
type question struct {
	ledger *sharing.Ledger
	pod    *sharing.PodRequest
	policy policy.Policy
}

// ask makes a question from bytes: up to three devices of any modes, some pods on
// them, and a pod of up to three containers.
func ask(data []byte) question {
	d := dice(data)
	inv := sharingtest.Node("n1")
	for i := range 1 + d.of(3) {
		dev := sharingtest.Device(i, "A30", sharing.Modes()[d.of(4)])
		switch d.of(16) {
		case 15:
			dev.Healthy = false
		case 14:
			dev.Cordon = &sharing.Cordon{}
		}
		dev.NUMA = []int{-1, 0, 1, 0}[d.of(4)]
		dev.Virtual = dev.NUMA == 1
		dev.MaxShares = []int{10, 1, 2, 3}[d.of(4)]
		if scaled := []sharing.Bytes{dev.Memory, dev.Memory / 2, 2 * dev.Memory}[d.of(3)]; scaled != dev.Memory {
			dev.Memory, dev.Physical = scaled, dev.Memory
		}
		dev.Cores = []sharing.Percent{100, 50, 200}[d.of(3)]
		if dev.Mode == sharing.MIG {
			if dev.MaxShares, dev.Memory, dev.Physical = 10, sharing.MiBs(24576), 0; d.of(2) == 1 {
				dev = sharingtest.Free(dev)
			}
		}
		inv.Devices = append(inv.Devices, dev)
	}
	q := question{ledger: sharing.NewLedger(inv, factory.New())}
	q.policy, _ = policy.Named(policy.Names()[d.of(2)])
	for i := range d.of(4) {
		pod := sharingtest.Pod(fmt.Sprintf("other-%d", i), request(&d, 0))
		if p, refusals := place.Place(q.ledger.Views(), pod, factory.New(), q.policy); !refusals.Refused() {
			if err := q.ledger.Reserve(pod.Owner, p); err != nil {
				panic(err)
			}
		}
	}
	q.pod = sharingtest.Pod("pod")
	for i := range 1 + d.of(3) {
		q.pod.Requests = append(q.pod.Requests, kinded(&d, request(&d, i)))
	}
	// The API server puts init containers and sidecars before app containers.
	slices.SortStableFunc(q.pod.Requests, func(a, b sharing.Request) int {
		return cmp.Compare(b2i(a.Kind == sharing.App), b2i(b.Kind == sharing.App))
	})
	for range d.of(3) {
		q.pod.Modes = append(q.pod.Modes, sharing.Modes()[d.of(4)])
	}
	q.pod.OneNUMA = d.of(4) == 3
	switch d.of(64) {
	case 63:
		q.pod.Selector.Virtual = sharing.OnlyVirtual
	case 62, 61:
		q.pod.Selector.Virtual = sharing.NeverVirtual
	}
	return q
}

func request(d *dice, i int) sharing.Request {
	r := sharingtest.Ask(fmt.Sprintf("c%d", i), []int64{0, 1000, 5000, 6000, 11000, 12000, 20000, 24576}[d.of(8)],
		[]sharing.Percent{0, 10, 25, 50, 60, 100}[d.of(6)])
	if d.of(8) == 7 {
		r.Memory = sharing.PercentMemory([]sharing.Percent{1, 30, 50, 100}[d.of(4)])
	}
	if d.of(4) == 3 {
		r.Count = 2
		r.Even = d.of(2) == 1
	}
	return r
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func kinded(d *dice, r sharing.Request) sharing.Request {
	r.Kind = []sharing.ContainerKind{sharing.App, sharing.App, sharing.Init, sharing.Sidecar}[d.of(4)]
	return r
}

// answer places the pod and checks everything that must hold of the answer. It
// returns whether the pod fits.
func (q *question) answer(t *testing.T) bool {
	t.Helper()
	views := q.ledger.Views()
	before := append([]sharing.View(nil), views...)
	placement, refusals := place.Place(views, q.pod, factory.New(), q.policy)
	again, refusedAgain := place.Place(views, q.pod, factory.New(), q.policy)
	if !reflect.DeepEqual(placement, again) || refusals != refusedAgain {
		t.Errorf("two answers to the same question: %+v, %+v", placement, again)
	}
	if !reflect.DeepEqual(before, views) {
		t.Error("the views were changed")
	}
	summary := place.Summarize(views)
	if summary.Refuses(q.pod) && !refusals.Refused() {
		t.Error("the summary refuses what fits")
	}
	if refusals.Refused() {
		if n := sharingtest.Allocations(func() { place.Place(views, q.pod, factory.New(), q.policy) }); n > q.mayAllocate() {
			t.Errorf("refusing allocates %v times", n)
		}
		q.checkRefusals(t, &refusals)
		return false
	}
	q.checkPlacement(t, &placement)
	return true
}

// mayAllocate is how often refusing may allocate: what each even split lists is on the heap.
func (q *question) mayAllocate() float64 {
	n := 4.0
	if q.pod.OneNUMA {
		n = 4*n + 8
	}
	for i := range q.pod.Requests {
		if q.pod.Requests[i].Even {
			n += 8
		}
	}
	return n
}

// checkRefusals: every device is counted once, as found or with a reason.
func (q *question) checkRefusals(t *testing.T, r *sharing.Refusals) {
	n := r.Found
	for reason := sharing.Reason(1); reason < sharing.Reasons; reason++ {
		n += int(r.Count[reason])
	}
	if n != len(q.ledger.Views()) || r.Devices != n || r.Container == "" {
		t.Errorf("%d of %d devices are accounted for: %v", n, r.Devices, r)
	}
}

// checkPlacement: every container has what it asked for, and the ledger takes it.
func (q *question) checkPlacement(t *testing.T, p *sharing.Placement) {
	if len(p.Containers) != len(q.pod.Requests) {
		t.Fatalf("%d containers placed of %d", len(p.Containers), len(q.pod.Requests))
	}
	modes := map[sharing.Mode]bool{}
	for i, c := range p.Containers {
		req := &q.pod.Requests[i]
		if c.Container != req.Container || c.Kind != req.Kind || len(c.Shares) != req.Count {
			t.Errorf("container %d asked for %+v and got %+v", i, req, c)
		}
		for k, s := range c.Shares {
			if k > 0 && s.Device <= c.Shares[k-1].Device || s.Mode != c.Shares[0].Mode {
				t.Errorf("the shares of a container are of one mode and different devices in order: %+v", c.Shares)
			}
			if first := c.Shares[0]; req.Even && (s.Memory != first.Memory || s.Cores != first.Cores) {
				t.Errorf("the split is not even: %+v", c.Shares)
			}
			modes[s.Mode] = true
		}
	}
	if len(q.pod.Modes) > 0 && len(modes) > 1 {
		t.Errorf("a pod that names modes is served in one: %v", modes)
	}
	at, virtual := map[int]bool{}, map[bool]bool{}
	for _, v := range q.ledger.Views() {
		if p.Uses(v.Device.ID) {
			at[v.Device.NUMA], virtual[v.Device.Virtual] = true, true
		}
	}
	if rule := q.pod.Selector.Virtual; rule == sharing.NeverVirtual && virtual[true] || rule == sharing.OnlyVirtual && virtual[false] {
		t.Errorf("a pod with rule %d has virtual devices and others: %v", rule, virtual)
	}
	if q.pod.OneNUMA && (len(at) != 1 || at[-1]) {
		t.Errorf("a pod that wants one NUMA node has devices at %v", at)
	}
	l := q.ledger.Fork()
	if err := l.Reserve(q.pod.Owner, *p); err != nil {
		t.Error(err)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// fitsSomehow reports whether any assignment of shares would do.
func (q *question) fitsSomehow() bool {
	var held []exhaustive.Held
	for d, v := range q.ledger.Views() {
		for _, h := range v.Held() {
			held = append(held, exhaustive.Held{Device: d, Kind: h.Kind, Share: h.Share})
		}
	}
	return exhaustive.Fits(q.ledger.Inventory().Devices, held, q.pod)
}

// The placer refuses no small pod that some assignment of shares would serve.
// Larger pods may be given up after so many choices; see searchPlacement.
func TestPlaceFindsAPlacementWheneverOneExists(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	fits, refused := 0, 0
	for i := range 11_000 {
		data := make([]byte, 64)
		for k := range data {
			data[k] = byte(rng.Uint32())
		}
		q := ask(data)
		got, want := q.answer(t), q.fitsSomehow()
		if got != want {
			t.Fatalf("question %d: placed %v, some placement exists: %v\n%s", i, got, want, q.text())
		}
		if got {
			fits++
		} else {
			refused++
		}
	}
	t.Logf("%d fit, %d refused", fits, refused)
	if fits < 1500 || refused < 1500 {
		t.Errorf("%d fit and %d are refused: the questions are too one-sided to mean much", fits, refused)
	}
}

func (q *question) text() string {
	text := fmt.Sprintf("policy %s modes %v\n", q.policy.Name(), q.pod.Modes)
	for _, r := range q.pod.Requests {
		text += fmt.Sprintf("  %v %s: %d devices, memory %+v, cores %d, even %v\n", r.Kind, r.Container, r.Count, r.Memory, r.Cores, r.Even)
	}
	for _, v := range q.ledger.Views() {
		text += fmt.Sprintf("%+v free %v %d%%, sharers %d\n", *v.Device, v.FreeMemory(), v.FreeCores(), v.Sharers())
		for _, h := range v.Held() {
			text += fmt.Sprintf("  %+v\n", h)
		}
	}
	return text
}

func FuzzPlace(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x02\x00\x01\x00\x00\x00\x01\x02\x03\x02\x01"))
	f.Add([]byte("two devices, a pod of two containers, one of them init"))
	f.Fuzz(func(t *testing.T, data []byte) {
		q := ask(data)
		if got, want := q.answer(t), q.fitsSomehow(); got != want {
			t.Fatalf("placed %v, some placement exists: %v\n%s", got, want, q.text())
		}
	})
}
