// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/sandbox/fakenode"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// What the simulation is asked about: pods that come one by one to nodes which are simulated, so
// that nothing runs, and which other suites' pods keep off.
const (
	simulatedPods, simulatedNodes, simulatedPerNode = 40, 4, 4

	simulatedMiB = 24576
	onlySimulate = "deviceshare.test/simulate"
	cardsPrefix  = "cards-"
)

// testSimulate captures the cluster, lets 40 random pods come, and asks `kubectl deviceshare
// simulate` what would have become of them.
func testSimulate(t *testing.T, w *world) {
	w.cardNodes(t) // first: its end comes last, since pods need a node to leave
	ctx, u := w.user(t, "simulate", 2*time.Minute)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 6 {
		w.decided(ctx, t, u, randomPod(fmt.Sprintf("before-%d", i), random))
	}
	// What the scheduler has learned of pods that left is in no capture. It forgets it.
	leader, holder := w.leader(ctx, t, "")
	if err := w.cluster.SignalPod(ctx, leader, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.leader(ctx, t, holder)
	w.cardsAreUsed(ctx, t)
	dir := t.TempDir()
	file, added := filepath.Join(dir, "cluster.jsonl"), filepath.Join(dir, "pods.yaml")
	w.deviceshare(ctx, t, "capture", file)
	var text bytes.Buffer
	want := map[string]string{}
	for i := range simulatedPods {
		p := randomPod(fmt.Sprintf("pod-%02d", i), random)
		document, err := yaml.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(document))
		want[u.Namespace()+"/"+p.Name] = w.decided(ctx, t, u, p)
	}
	if err := os.WriteFile(added, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	answer := w.deviceshare(ctx, t, "simulate", file, "--add", added, "-n", u.Namespace(), "--one-by-one", "-o", "json")
	got := simulatedPlaces(t, answer)
	waiting := 0
	for name, place := range want {
		if got[name] != place {
			t.Errorf("%s: the cluster says %q, the simulation %q", name, place, got[name])
		}
		if place == "" {
			waiting++
		}
	}
	if len(got) != len(want) || waiting == 0 || waiting > simulatedPods*3/4 {
		t.Errorf("%d pods are compared, of which %d wait; %d are simulated", len(want), waiting, len(got))
	}
	t.Logf("%d of %d pods were placed, and simulated so", len(want)-waiting, len(want))
}

// cardNodes adds simulated nodes with cards.
func (w *world) cardNodes(t *testing.T) {
	t.Helper()
	var nodes []*corev1.Node
	for i := range simulatedNodes {
		inv := simulatedCards(cardsPrefix+strconv.Itoa(i), fmt.Sprintf("GPU-51b%d0000", i), "NVIDIA A10", simulatedPerNode, simulatedMiB)
		nodes = append(nodes, nodeWithCards(t, inv, onlySimulate, map[string]string{"zone": fmt.Sprint(i % 2)}, corev1.ResourceList{
			corev1.ResourcePods: resource.MustParse("50"), corev1.ResourceCPU: resource.MustParse("24"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		}))
	}
	w.simulateNodes(t, nodes...)
}

// simulateNodes adds nodes that are not there, until the test has ended.
func (w *world) simulateNodes(t *testing.T, nodes ...*corev1.Node) {
	t.Helper()
	keeper, err := fakenode.Create(t.Context(), w.cluster.Client(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); keeper.Run(run) }()
	t.Cleanup(func() {
		stop()
		<-done
		for _, n := range nodes {
			if err := w.cluster.Client().CoreV1().Nodes().Delete(context.Background(), n.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
}

// simulatedCards are devices in mode hami-core of a node that is not there. Their UUIDs begin with
// the given text.
func simulatedCards(node, uuid, model string, n int, memoryMiB int64) sharing.Inventory {
	inv := sharing.Inventory{Node: node}
	for d := range n {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("%s-0000-0000-0000-00000000000%d", uuid, d)), Index: d, Model: model,
			Memory: sharing.MiBs(memoryMiB), Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
		})
	}
	return inv
}

// nodeWithCards is a node with simulated devices and other amounts. Its taint, and a label, have
// the given key: pods of other suites keep off.
func nodeWithCards(t *testing.T, inv sharing.Inventory, key string, labels map[string]string, amounts corev1.ResourceList) *corev1.Node {
	t.Helper()
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(len(inv.Devices))
	for name, sum := range map[corev1.ResourceName]int64{workload.Number: 10 * n, workload.Memory: n * inv.Devices[0].Memory.WholeMiB(), workload.Cores: 100 * n} {
		amounts[name] = *resource.NewQuantity(sum, resource.DecimalSI)
	}
	labels[key] = "true"
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: inv.Node, Annotations: annotations, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Capacity: amounts},
	}
}

// cardsAreUsed waits until a scheduler that has just started places pods on the nodes: before
// it has seen their pods it refuses all.
func (w *world) cardsAreUsed(ctx context.Context, t *testing.T) {
	t.Helper()
	for {
		used, err := w.usedCardNodes(ctx)
		if used == simulatedNodes {
			return
		}
		if sleep(ctx, 200*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("the scheduler uses %d of %d nodes: %v", used, simulatedNodes, err)
		}
	}
}

// usedCardNodes asks the scheduler how many of the nodes it places pods on.
func (w *world) usedCardNodes(ctx context.Context) (int, error) {
	address, err := w.cluster.PagesOf(ctx, sandbox.Scheduler)
	if err != nil {
		return 0, err
	}
	token, err := w.cluster.ReaderToken(ctx)
	if err != nil {
		return 0, err
	}
	_, text, err := sandbox.GetPage(ctx, address+"/deviceshare/ledger", token)
	if err != nil {
		return 0, err
	}
	var ledger struct {
		Nodes map[string]struct{ Warming bool }
	}
	if err := json.Unmarshal(text, &ledger); err != nil {
		return 0, fmt.Errorf("decode the scheduler's ledger: %w", err)
	}
	used := 0
	for name, n := range ledger.Nodes {
		if strings.HasPrefix(name, cardsPrefix) && !n.Warming {
			used++
		}
	}
	return used, nil
}

// randomPod is a pod that asks for much or little, here or there.
func randomPod(name string, random *rand.Rand) *corev1.Pod {
	one := func(of ...int64) int64 { return of[random.IntN(len(of))] }
	ask := workload.Ask{Number: one(1, 1, 1, 2), Memory: one(2000, 4000, 8000, 12000, 20000, simulatedMiB), Cores: one(0, 0, 10, 30, 60)}
	p := pod(name).App("main", ask, "forever").Edit(func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{onlySimulate: "true"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: onlySimulate, Operator: corev1.TolerationOpExists}}
		if zone := one(0, 1, 2, 2, 2, 2); zone < 2 {
			p.Spec.NodeSelector["zone"] = fmt.Sprint(zone)
		}
		if cpu := one(0, 1, 2, 4); cpu > 0 {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)}
		}
	})
	if policy := []string{"", "", "", "binpack", "spread"}[random.IntN(5)]; policy != "" {
		p.Annotate(wire.UserPolicy, policy)
	}
	return p.Build()
}

// decided creates a pod and waits until the scheduler has placed it or says why not. It returns the
// place, "" for none.
func (w *world) decided(ctx context.Context, t *testing.T, u *user.User, p *corev1.Pod) string {
	t.Helper()
	if err := u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	now, err := u.Wait(ctx, p.Name, "placed or refused", func(p *corev1.Pod) bool {
		return p.Spec.NodeName != "" || slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if now.Spec.NodeName == "" {
		return ""
	}
	placement, err := wire.DecodePlacement(now.Annotations[wire.PodPlacement])
	if err != nil {
		t.Fatal(err)
	}
	var shares []string
	for _, s := range placement.Containers[0].Shares {
		id := string(s.Device)
		shares = append(shares, onDevice(id[len(id)-1:], int64(s.Memory), int(s.Cores)))
	}
	slices.Sort(shares)
	return now.Spec.NodeName + " " + strings.Join(shares, ", ")
}

func onDevice(index string, memory int64, cores int) string {
	return fmt.Sprintf("%s: %d bytes, %d%%", index, memory, cores)
}

// simulatedPlaces reads the answer of the simulation.
func simulatedPlaces(t *testing.T, text string) map[string]string {
	t.Helper()
	var answer struct {
		Pods []struct {
			Pod, Was, Node string
			Holds          []struct {
				Device int
				Memory int64
				Cores  int
			}
		}
		Notes []string
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Notes) > 0 {
		t.Errorf("the simulation assumes something: %q", answer.Notes)
	}
	out := map[string]string{}
	for _, p := range answer.Pods {
		if p.Was != "new" {
			continue
		}
		var shares []string
		for _, h := range p.Holds {
			shares = append(shares, onDevice(fmt.Sprint(h.Device), h.Memory, h.Cores))
		}
		slices.Sort(shares)
		out[p.Pod] = strings.TrimSpace(p.Node + " " + strings.Join(shares, ", "))
	}
	return out
}
