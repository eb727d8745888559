// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"os"
	"testing"
	"time"

	"deviceshare/e2e/laboratory/chaos"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
)

// The kills of the suite, how many pods there are side by side, and a seed with which everything is
// done that can be done.
const (
	chaosKills = 40
	chaosSeed  = 1194
	chaosLanes = 8
)

func TestTheSeedOfTheSuiteDoesEverythingToEverything(t *testing.T) {
	plan, actions, killed := chaos.NewPlan(chaosSeed), map[chaos.Action]bool{}, map[string]bool{}
	for range chaosKills {
		e := plan.Next()
		actions[e.Action] = true
		if e.Action == chaos.Kill {
			killed[e.Target] = true
		}
	}
	if len(actions) != 7 || len(killed) != 7 {
		t.Errorf("the first %d events are %v, and kill %v", chaosKills, actions, killed)
	}
}

// TestChaos breaks each promise that package chaos checks, on purpose, and wants that it is
// noticed. Then it goes on like the suite.
func TestChaos(t *testing.T) {
	if os.Getenv("DEVICESHARE_CHAOS") == "" {
		t.Skip("needs root and a cluster: run `make sabotage`")
	}
	start(t, sandbox.Options{Installed: true}).run(t, []suite{{"sabotage", testSabotage}, {"chaos", testChaos}})
}

// testChaos kills, freezes and breaks the parts of the cluster under load, and wants that no
// promise is broken.
func testChaos(t *testing.T, w *world) {
	w.takeTurn(t)
	w.inChaos(t, "before-chaos", func(context.Context, *user.User) {
		ctx, cancel := context.WithTimeout(context.Background(), slack*10*time.Minute)
		defer cancel()
		report, err := chaos.Run(ctx, w.cluster, chaos.Options{Seed: chaosSeed, Kills: chaosKills, Lanes: chaosLanes,
			Patience: slack * 4 * time.Minute, Progress: func(text string) { t.Log(text) }})
		t.Logf("seed %d: %s", chaosSeed, report)
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Violations) > 0 {
			t.Errorf("%d promises were broken", len(report.Violations))
		}
	})
}

// inChaos gives the cluster the devices and modes that package chaos wants while do is done.
func (w *world) inChaos(t *testing.T, namespace string, do func(context.Context, *user.User)) {
	ctx, u := w.user(t, namespace, 4*time.Minute)
	if err := w.cluster.SwapGPUs(ctx, chaos.Topology()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.calmDown(t, u) })
	if err := u.ConfigureNodes(ctx, chaos.Quiet()); err != nil {
		t.Fatal(err)
	}
	do(ctx, u)
}

// calmDown gives the cluster back as it was.
func (w *world) calmDown(t *testing.T, u *user.User) {
	ctx, cancel := context.WithTimeout(context.Background(), slack*3*time.Minute)
	defer cancel()
	if err := u.ConfigureNodes(ctx, `{"nodeconfig":[]}`); err != nil {
		t.Error(err)
	}
	w.upgrade(ctx, t)
	if err := chaos.Release(ctx, w.cluster); err != nil {
		t.Error(err)
	}
	if err := w.cluster.SwapGPUs(ctx, topology()); err != nil {
		t.Error(err)
	}
	if !runs(ctx, t, u, "afterwards") {
		t.Error("no pod runs after all that was done to the cluster")
	}
}
