// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/worth"
)

// learned is the policy fragmentation after pods of several kinds arrived.
func learned(views []sharing.View) policy.Policy {
	var a worth.Arrivals
	for i := range 200 {
		pod := one("main", sharing.PercentMemory(sharing.Percent(10+10*(i%10))), sharing.Percent(10+10*(i%10)))
		if i%7 == 0 {
			pod.Requests[0].Count = 2
		}
		a.Note(sharing.Owner(fmt.Sprint(i)), worth.KindOf(pod, worth.Amounts{CPU: float64(1000 * (i % 9)), Memory: 1 << 30}))
	}
	classes := map[worth.Class]int{}
	for i := range views {
		classes[worth.ClassOf(views[i].Device)]++
	}
	return policy.Fragmentation(worth.NewModel(a.Mix(), classes))
}

// anyNode is a node with devices of several models and modes, and random shares on them.
func anyNode(tb testing.TB, r *rand.Rand) *sharing.Ledger {
	tb.Helper()
	inv := &sharing.Inventory{Node: "n1"}
	for i := range 1 + r.IntN(8) {
		mode := sharing.Modes()[r.IntN(4)]
		d := sharingtest.Device(i, "A100-80", mode)
		if mode == sharing.MIG && r.IntN(2) == 0 {
			d = sharingtest.BestFit(sharingtest.Free(d))
		}
		d.Healthy = r.IntN(9) > 0
		if r.IntN(9) == 0 {
			d.Cordon = &sharing.Cordon{}
		}
		inv.Devices = append(inv.Devices, d)
	}
	l := sharing.NewLedger(inv, factory.New())
	spread, _ := policy.Named("spread")
	for i := range r.IntN(12) {
		pod := one("main", sharing.PercentMemory(sharing.Percent(1+r.IntN(60))), sharing.Percent(r.IntN(50)))
		if p, refused := place.Place(l.Views(), pod, factory.New(), spread); !refused.Refused() {
			if err := l.Reserve(sharing.Owner(fmt.Sprint(i)), p); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return l
}

// A node is scored exactly if the pod fits there, whatever the pod and the node; the score is a
// number, and it is the same when asked again.
func TestANodeIsScoredByWhatIsLostExactlyIfThePodFits(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	scored, refused := 0, 0
	for range 500 {
		views := anyNode(t, r).Views()
		pack := learned(views)
		pod := one("main", sharing.PercentMemory(sharing.Percent(1+r.IntN(60))), sharing.Percent(r.IntN(60)))
		pod.Requests[0].Count = 1 + r.IntN(3)
		if r.IntN(3) == 0 {
			pod.Requests = append(pod.Requests, pod.Requests[0])
			pod.Requests[1].Container, pod.Requests[0].Kind = "other", sharing.ContainerKind(r.IntN(3))
		}
		if r.IntN(3) == 0 {
			pod.Modes = []sharing.Mode{sharing.Modes()[r.IntN(4)], "example.com/none"}
		}
		h := worth.Host{Views: views, Free: worth.Amounts{CPU: float64(r.IntN(64_000)), Memory: float64(r.IntN(1 << 36))}}
		needs := worth.Amounts{CPU: float64(r.IntN(16_000)), Memory: 1 << 30}
		_, refusals := place.Place(views, pod, factory.New(), pack)
		points, fits := place.Score(h, pod, needs, factory.New(), pack)
		if fits == refusals.Refused() {
			t.Fatalf("scored %v, refused %v: %s", fits, refusals.Refused(), refusals.String())
		}
		if math.IsNaN(points) || fits && math.Abs(points) > policy.MaxPoints+1 || !fits && points != place.Unfit {
			t.Fatalf("%v points", points)
		}
		if again, _ := place.Score(h, pod, needs, factory.New(), pack); again != points {
			t.Fatalf("%v points, %v when asked again", points, again)
		}
		if fits {
			scored++
		} else {
			refused++
		}
	}
	if scored < 50 || refused < 50 {
		t.Errorf("%d fit, %d do not: the test shows little", scored, refused)
	}
}

// Policies that do not learn leave pods without devices to others.
func TestPoliciesThatDoNotLearnScoreNoPodWithoutDevices(t *testing.T) {
	views := busyNode(t).Views()
	for _, name := range []string{"binpack", "spread"} {
		p, _ := policy.Named(name)
		if score, _ := place.Score(worth.Host{Views: views}, nil, worth.Amounts{CPU: 1e6}, factory.New(), p); score != 0 || p.Learns() {
			t.Errorf("%s scores %v", name, score)
		}
	}
}

func TestScoringByWhatIsLostAllocatesNothing(t *testing.T) {
	views := busyNode(t).Views()
	pack, backends, pod := learned(views), factory.New(), one("main", sharing.AbsoluteMemory(4*sharing.GiB), 5)
	h := worth.Host{Views: views, Free: worth.Amounts{CPU: 64_000, Memory: 1 << 38}}
	if n := testing.AllocsPerRun(100, func() { place.Score(h, pod, worth.Amounts{CPU: 1000}, backends, pack) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
