// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"os"
	"testing"
	"time"

	"deviceshare/e2e/chaos"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
)

// The kills that follow the sabotage, and their seed.
const (
	chaosKills = 150
	chaosSeed  = 1
)

// TestChaos is by itself: under kills a bare pod may be left whose partitions were chosen before
// the administrator's edit, and nothing but its user ends it.
func TestChaos(t *testing.T) {
	if os.Getenv("DEVICESHARE_CHAOS") == "" {
		t.Skip("needs root and a cluster: run `make sabotage`")
	}
	start(t, sandbox.Options{Installed: true}).run(t, []suite{{"chaos", testChaos}})
}

// testChaos first breaks each promise that package chaos checks, on purpose, and wants that it is
// noticed. Then it kills, freezes and breaks the parts of the cluster under load, and wants that no
// promise is broken.
func testChaos(t *testing.T, w *world) {
	ctx, u := w.user(t, "sabotage", 4*time.Minute)
	if err := w.cluster.SwapGPUs(ctx, chaos.Topology()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.calmDown(t, u) })
	if err := u.ConfigureNodes(ctx, chaos.Quiet()); err != nil {
		t.Fatal(err)
	}
	t.Run("sabotage", func(t *testing.T) { w.sabotageIsFound(ctx, t, u) })
	t.Run("kills", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), slack*10*time.Minute)
		defer cancel()
		report, err := chaos.Run(ctx, w.cluster, chaos.Options{Seed: chaosSeed, Kills: chaosKills, Lanes: 12,
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
