// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/sharingtest"
)

// clusters is how many random ones are tried, DEVICESHARE_PLANS says it.
func clusters(t *testing.T) int {
	t.Helper()
	text := os.Getenv("DEVICESHARE_PLANS")
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Random clusters: the plan costs what the cheapest of all sets of pods costs, wherever it is said
// to be proven, which is not so for pods of several containers with more than two devices in all:
// place may give those up. In half of the clusters pods do not accept all neighbours.
// DEVICESHARE_PLANS says how many clusters.
func TestPlansCostWhatTheCheapestSetOfPodsCosts(t *testing.T) {
	n := clusters(t)
	plans, proven := 0, 0
	for seed := range n {
		c := dice{rand.New(rand.NewPCG(uint64(seed), 13))}.cluster(seed%2 == 1)
		found, sure := c.check(t)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		if found {
			plans++
		}
		if sure {
			proven++
		}
	}
	t.Logf("%d clusters: %d plans, %d answers proven", n, plans, proven)
	if plans < n/5 || n-plans < n/5 || proven < n*9/10 {
		t.Errorf("%d plans and %d proven answers of %d clusters: want more", plans, proven, n)
	}
}

// Pods with equal shares and costs are tried as one. They are not equal to a pod that accepts one
// of them only.
func TestOfPodsWithEqualSharesTheOneThatIsNotAcceptedLeaves(t *testing.T) {
	for _, red := range []int{0, 1, 2} {
		inv := sharingtest.Node("n", sharingtest.Device(0, "A30", sharing.HAMiCore))
		ledger := sharing.NewLedger(inv, factory.New())
		var victims []*plan.Victim
		for i := range 3 {
			owner := sharing.Owner(fmt.Sprint("p", i))
			pod := sharingtest.Pod(string(owner), sharingtest.Ask("c", 1000, 0))
			pod.Neighbours = clusterNear{label: map[bool]string{true: "red"}[i == red]}.asRequested()
			placement, _ := place.Place(ledger.Views(), pod, factory.New(), binpack())
			if err := ledger.Reserve(owner, placement); err != nil {
				t.Fatal(err)
			}
			victims = append(victims, &plan.Victim{Owner: owner})
		}
		wish := &plan.Wish{Request: sharingtest.Pod("wish", sharingtest.Ask("c", 1000, 0)), Backends: factory.New(), Policy: binpack(), Level: 1}
		wish.Request.Neighbours = clusterNear{avoids: "red"}.asRequested()
		w := &plan.World{Nodes: []*plan.Node{plan.NewNode("n", ledger.Views(), nil, nil, victims)}}
		p, no := plan.Find(w, wish)
		if no != nil || len(p.Evict) != 1 || p.Evict[0] != victims[red] {
			t.Errorf("pod %d is red: %v leave, %v", red, len(p.Evict), no)
		}
	}
}
