// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// TestNUMA runs a kubelet that pins CPUs and refuses pods for good that it cannot put on one NUMA
// node.
func TestNUMA(t *testing.T) {
	if os.Getenv("DEVICESHARE_E2E") == "" {
		t.Skip("needs root and a cluster: run `make test-e2e`")
	}
	if testing.Short() {
		t.Skip("a cluster of its own: run `make test-all`")
	}
	w := start(t, sandbox.Options{TopologyPolicy: "single-numa-node"})
	t.Run("devices_of_two_nodes", func(t *testing.T) { testTwoNUMANodes(t, w) })
	t.Run("devices_of_one_node", func(t *testing.T) { testOneNUMANode(t, w) })
}

// pinned asks for CPUs of its own beside devices.
func pinned(name string, devices, cpus int64) *workload.Pod {
	return pod(name).App("main", workload.Ask{Number: devices, Memory: 500}, "info", "env", "forever").Edit(func(p *corev1.Pod) {
		limits := p.Spec.Containers[0].Resources.Limits
		limits[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
		limits[corev1.ResourceMemory] = resource.MustParse("64Mi")
	})
}

// The devices are on two NUMA nodes, and the scheduler alone chooses them. The kubelet is given no
// hint then: pods of one and two devices run whichever slots are left on which node, and their CPUs
// are together.
func testTwoNUMANodes(t *testing.T, w *world) {
	ctx, u := w.user(t, "numa-two", 2*time.Minute)
	w.oneSlotADevice(ctx, t, u)
	// With hints of the slots' own devices these three took slots of the first node, and the last
	// pod found the CPUs that it needs on the first node and the slots on the second.
	for i := range 3 {
		if err := u.Create(ctx, pod(fmt.Sprintf("free-%d", i)).App("main", workload.Ask{Number: 1, Memory: 500}, "forever").Build()); err != nil {
			t.Fatal(err)
		}
		w.runsAligned(ctx, t, u, fmt.Sprintf("free-%d", i), -1)
	}
	for i := range 2 {
		name := fmt.Sprintf("pair-%d", i)
		if err := u.Create(ctx, pinned(name, 2, 2).Build()); err != nil {
			t.Fatal(err)
		}
		w.runsAligned(ctx, t, u, name, 2)
	}
	if err := u.Create(ctx, pinned("single", 1, 1).Build()); err != nil {
		t.Fatal(err)
	}
	w.runsAligned(ctx, t, u, "single", 1)
}

// All devices are on one NUMA node. The kubelet is told, and takes the CPUs of every pod from
// there.
func testOneNUMANode(t *testing.T, w *world) {
	ctx, u := w.user(t, "numa-one", 2*time.Minute)
	if err := w.cluster.SwapGPUs(ctx, strings.ReplaceAll(topology(), "numa=0", "numa=1")); err != nil {
		t.Fatal(err)
	}
	// A kubelet that starts counts the slots of all pods that it remembers as taken, until it has
	// looked at the present ones once.
	if err := u.Create(ctx, pod("any").Plain("main", "true").Build()); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, u, "any")
	w.oneSlotADevice(ctx, t, u)
	for i, devices := range []int64{1, 2} {
		name := fmt.Sprintf("near-%d", i)
		if err := u.Create(ctx, pinned(name, devices, devices).Build()); err != nil {
			t.Fatal(err)
		}
		if node := w.runsAligned(ctx, t, u, name, devices); node != 1 {
			t.Errorf("pod %s has CPUs of NUMA node %d, its devices are at node 1", name, node)
		}
	}
}

// oneSlotADevice lets every device have one container.
func (w *world) oneSlotADevice(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	if err := u.ConfigureNodes(ctx, fmt.Sprintf(`{"nodeconfig":[{"name":%q,"devicesplitcount":1}]}`, sandbox.NodeName)); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := w.cluster.Client().CoreV1().Nodes().Get(ctx, sandbox.NodeName, metav1.GetOptions{})
		if q := n.Status.Allocatable[workload.Number]; err == nil && q.Value() == gpus {
			return
		}
		if !orDone(ctx, 100*time.Millisecond) {
			t.Fatalf("the node does not offer %d slots: %v", gpus, err)
		}
	}
}

// runsAligned waits until a pod runs with so many CPUs of its own, all of one NUMA node, which it
// returns; -1 stands for a pod without CPUs of its own.
func (w *world) runsAligned(ctx context.Context, t *testing.T, u *user.User, name string, want int64) int {
	t.Helper()
	p, err := u.WaitRunning(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if want < 0 {
		return -1
	}
	cpus := w.cpusOf(t, p)
	nodes := map[int]bool{}
	for _, cpu := range cpus.List() {
		nodes[cpu/sandbox.CPUsPerNUMA] = true
	}
	if int64(cpus.Size()) != want || len(nodes) != 1 {
		t.Fatalf("pod %s has the CPUs %s, want %d of one NUMA node", name, cpus, want)
	}
	for node := range nodes {
		t.Logf("pod %s has CPUs %s of NUMA node %d", name, cpus, node)
		return node
	}
	return -1
}

// cpusOf reads the kubelet's own record.
func (w *world) cpusOf(t *testing.T, p *corev1.Pod) cpuset.CPUSet {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.cluster.Dir(), "kubelet", "cpu_manager_state"))
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Entries map[types.UID]map[string]string
	}
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	cpus, err := cpuset.Parse(state.Entries[p.UID]["main"])
	if err != nil {
		t.Fatalf("the kubelet's record of pod %s: %v", p.Name, err)
	}
	return cpus
}
