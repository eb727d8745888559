// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"testing"
	"time"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
)

// The node has four devices at each of two NUMA nodes. A container of several devices, the
// containers of one pod and the pods of one job get devices that are near each other, although the
// order of the devices would give them others.
func testTopology(t *testing.T, w *world) {
	ctx, u := w.user(t, "topology", 2*time.Minute)
	inv := w.inventory(ctx, t)
	whole := func(name string, devices int64) *workload.Pod {
		return pod(name).App("main", workload.Ask{Number: devices}, "forever")
	}
	first, last := inv.Devices[0], inv.Devices[len(inv.Devices)-1]
	if first.NUMA == last.NUMA || first.NUMA < 0 {
		t.Fatalf("the devices are at NUMA nodes %d and %d, want two", first.NUMA, last.NUMA)
	}
	if path, _ := first.PathTo(&last); path != sharing.PathSYS {
		t.Errorf("the node publishes no path from its first device to its last: %v", first.Links)
	}

	if got := w.numaOf(ctx, t, u, &inv, whole("single", 1)); len(got) != 1 || got[first.NUMA] != 1 {
		t.Fatalf("a pod of one device has devices at %v, want the first", got)
	}
	if got := w.numaOf(ctx, t, u, &inv, whole("four", 4)); got[last.NUMA] != 4 {
		t.Errorf("a container of four devices has them at NUMA nodes %v, want four at one", got)
	}
	if err := u.Delete(ctx, "four"); err != nil {
		t.Fatal(err)
	}
	// Three are left at the first NUMA node, four at the other.
	containers := pod("containers").App("a", workload.Ask{Number: 2}, "forever").App("b", workload.Ask{Number: 2}, "forever")
	if got := w.numaOf(ctx, t, u, &inv, containers); got[last.NUMA] != 4 {
		t.Errorf("two containers of two devices have them at NUMA nodes %v, want four at one", got)
	}
	if err := u.Delete(ctx, "containers"); err != nil {
		t.Fatal(err)
	}
	w.group(t, u.Namespace(), "job", 1)
	placed := whole("placed", 1).Annotate(workload.GroupKey, "job").Annotate("volcano.sh/vgpu-use-gpuuuid", string(last.ID))
	if got := w.numaOf(ctx, t, u, &inv, placed); got[last.NUMA] != 1 {
		t.Errorf("a pod that names its device has another one, at %v", got)
	}
	if got := w.numaOf(ctx, t, u, &inv, whole("mate", 1).Annotate(workload.GroupKey, "job")); got[last.NUMA] != 1 {
		t.Errorf("the second pod of the job has a device at %v, want one near the first pod's", got)
	}
}

// numaOf creates a pod and counts its devices by NUMA node.
func (w *world) numaOf(ctx context.Context, t *testing.T, u *user.User, inv *sharing.Inventory, p *workload.Pod) map[int]int {
	t.Helper()
	built := p.Build()
	if err := u.Create(ctx, built); err != nil {
		t.Fatal(err)
	}
	at := map[int]int{}
	for _, s := range sharesOf(ctx, t, u, built.Name) {
		if d, ok := inv.Device(s.Device); ok {
			at[d.NUMA]++
		}
	}
	return at
}
