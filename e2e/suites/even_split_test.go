// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/workload"
)

// With the annotation a container's amounts are totals, and each of its devices gives the same part
// of them: the scheduler decides by the part, the node finds it right, and the library holds it.
func testEvenSplit(t *testing.T, w *world) {
	ctx, u := w.user(t, "even-split", 2*time.Minute)
	split := func(name string, ask workload.Ask, steps ...string) *workload.Pod {
		return pod(name).App("main", ask, steps...).Annotate("volcano.sh/vgpu-split", "even")
	}

	refused := u.Create(ctx, split("nothing-each", workload.Ask{Number: 4, Memory: 3}, "info").Build())
	if refused == nil || !strings.Contains(refused.Error(), "3 cannot be split evenly over 4 devices: that is less than 1MiB of each") {
		t.Errorf("a total that leaves nothing for each device was answered with %v", refused)
	}

	// 20001 MiB over two devices are 10000 MiB of each, and the odd one is given by none.
	p := split("halves", workload.Ask{Number: 2, Memory: 20001, Cores: 61},
		"device", "0", "alloc", "9000", "expect", "ok", "alloc", "2000", "expect", "oom",
		"device", "1", "alloc", "9000", "expect", "ok", "alloc", "2000", "expect", "oom", "forever").Build()
	if err := u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	shares := sharesOf(ctx, t, u, "halves")
	for _, s := range shares {
		if s.Memory.WholeMiB() != 10000 || s.Cores != 30 {
			t.Errorf("device %s gives %v and %d%%, want 10000 MiB and 30%%", s.Device, s.Memory, s.Cores)
		}
	}
	if len(shares) != 2 {
		t.Errorf("the container has %d shares, want 2", len(shares))
	}
}
