// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
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
// place may give those up. DEVICESHARE_PLANS says how many clusters.
func TestPlansCostWhatTheCheapestSetOfPodsCosts(t *testing.T) {
	n := clusters(t)
	plans, proven := 0, 0
	for seed := range n {
		c := dice{rand.New(rand.NewPCG(uint64(seed), 13))}.cluster()
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
