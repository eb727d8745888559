// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"testing"
	"time"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
)

// Binpack puts pods on the device that is used most, spread on the one that is
// used least; each pod may choose.
func testPlacement(t *testing.T, w *world) {
	cases := []struct {
		policy  string
		devices int // how many different devices three small pods end on
	}{
		{"binpack", 1},
		{"spread", 3},
	}
	for _, c := range cases {
		t.Run(c.policy, func(t *testing.T) {
			ctx, u := w.user(t, "placement-"+c.policy, 2*time.Minute)
			used := map[sharing.DeviceID]bool{}
			for i := range 3 {
				name := fmt.Sprintf("pod-%d", i)
				p := pod(name).App("main", workload.Ask{Number: 1, Memory: 4096}, "forever").
					Annotate("volcano.sh/vgpu-policy", c.policy).Build()
				if err := u.Create(ctx, p); err != nil {
					t.Fatal(err)
				}
				for _, s := range sharesOf(ctx, t, u, name) {
					used[s.Device] = true
				}
			}
			if len(used) != c.devices {
				t.Errorf("three pods with policy %s are on %d devices, want %d", c.policy, len(used), c.devices)
			}
		})
	}
}

// sharesOf waits until a pod runs and returns all its shares.
func sharesOf(ctx context.Context, t *testing.T, u *user.User, name string) []sharing.Share {
	t.Helper()
	p, err := u.WaitRunning(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	placement, err := user.Placement(p)
	if err != nil {
		t.Fatal(err)
	}
	var shares []sharing.Share
	for _, c := range placement.Containers {
		shares = append(shares, c.Shares...)
	}
	return shares
}
