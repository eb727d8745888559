// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
)

// The label by which the chart's DaemonSet finds the nodes that were moved.
const (
	movedLabel = "gpu-plugin"
	movedValue = "deviceshare"
)

// Annotations of nodes.
const (
	inventoryAnnotation = "volcano.sh/node-vgpu-inventory"
	withdrawAnnotation  = "volcano.sh/vgpu-withdraw"
)

// install installs the chart beside what there is: no scheduler yet, the ConfigMaps that there are,
// and the device plugin on no node.
func (f *fleet) install(ctx context.Context, t *testing.T) {
	t.Helper()
	out, err := f.cluster.Install(ctx, "--set", "scheduler.enabled=false", "--set", "createConfig=false", "--set", "devicePlugin.legacyReceipts=true",
		"--set", "devicePlugin.nodeSelector."+movedLabel+"="+movedValue)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := f.cluster.WaitReady(ctx, sandbox.Webhook); err != nil {
		t.Fatal(err)
	}
}

// volcanoScheduler does `kubectl -n volcano-system scale deployment volcano-scheduler`, and waits
// until it is gone, or works.
func (f *fleet) volcanoScheduler(ctx context.Context, t *testing.T, runs bool) {
	t.Helper()
	replicas := map[bool]int{true: 1}[runs]
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := f.cluster.Client().AppsV1().Deployments(sandbox.VolcanoNamespace).Patch(ctx, sandbox.VolcanoScheduler, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		pods, err := f.cluster.Client().CoreV1().Pods(sandbox.VolcanoNamespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) == replicas && (!runs || pods.Items[0].Status.Phase == corev1.PodRunning) {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("wait for %d pods of Volcano's scheduler: %v", replicas, err)
		}
		sleep(ctx, 100*time.Millisecond)
	}
	if runs {
		f.volcanoKnowsTheNodes(ctx, t)
	}
}

// volcanoKnowsTheNodes waits until Volcano's scheduler has answered every sign of life. Before, it
// binds pods that ask for devices without giving them any: it looks at a node's devices only when
// the node changes.
func (f *fleet) volcanoKnowsTheNodes(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, n := range f.nodes {
		if n.legacy == nil {
			continue
		}
		if err := n.legacy.Report(ctx); err != nil { // within 30 s it does so by itself
			t.Fatal(err)
		}
		f.node(ctx, t, n, "was seen by Volcano's scheduler", func(o *corev1.Node) bool {
			return strings.HasPrefix(o.Annotations["volcano.sh/node-vgpu-handshake"], "Requesting")
		})
	}
}

// patchNode does `kubectl label`, `annotate` and `cordon`.
func (f *fleet) patchNode(ctx context.Context, t *testing.T, n *fleetNode, patch string) {
	t.Helper()
	if _, err := f.cluster.Client().CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) cordon(ctx context.Context, t *testing.T, n *fleetNode, is bool) {
	t.Helper()
	f.patchNode(ctx, t, n, fmt.Sprintf(`{"spec":{"unschedulable":%v}}`, is))
}

// toOurs moves a node under its running pods.
func (f *fleet) toOurs(ctx context.Context, t *testing.T, n *fleetNode) {
	t.Helper()
	began := time.Now()
	f.cordon(ctx, t, n, true)
	n.stopLegacy()
	f.patchNode(ctx, t, n, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, movedLabel, movedValue))
	f.pluginPod(ctx, t, n, true)
	if n.isHollow() {
		if err := f.cluster.StartHollowPlugin(ctx, n.name); err != nil {
			t.Fatal(err)
		}
	}
	f.node(ctx, t, n, "has healthy devices of our plugin", func(o *corev1.Node) bool {
		text := o.Annotations[inventoryAnnotation]
		return strings.Count(text, `"healthy":true`) == len(n.devices)
	})
	f.offers(ctx, t, n)
	f.hooksAreLeft(t)
	f.cordon(ctx, t, n, false)
	t.Logf("node %s moved to our device plugin in %.1f s", n.name, time.Since(began).Seconds())
}

// toLegacy moves a node back under its running pods.
func (f *fleet) toLegacy(ctx context.Context, t *testing.T, n *fleetNode) {
	t.Helper()
	began := time.Now()
	f.cordon(ctx, t, n, true)
	until := time.Now().Add(10 * time.Minute).UTC().Format(time.RFC3339)
	f.patchNode(ctx, t, n, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, withdrawAnnotation, until))
	f.node(ctx, t, n, "has no inventory any more", func(o *corev1.Node) bool {
		_, is := o.Annotations[inventoryAnnotation]
		return !is
	})
	f.patchNode(ctx, t, n, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, movedLabel))
	f.pluginPod(ctx, t, n, false)
	if n.isHollow() {
		if err := f.cluster.StopComponent(sandbox.HollowDevicePlugin(n.name)); err != nil {
			t.Fatal(err)
		}
	}
	f.patchNode(ctx, t, n, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, withdrawAnnotation))
	f.startLegacy(ctx, t, n)
	f.cordon(ctx, t, n, false)
	t.Logf("node %s moved back to Volcano's device plugin in %.1f s", n.name, time.Since(began).Seconds())
}

// pluginPod waits until the DaemonSet's pod is on a node, or is gone from it.
func (f *fleet) pluginPod(ctx context.Context, t *testing.T, n *fleetNode, want bool) {
	t.Helper()
	for {
		pods, err := f.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/name=deviceshare-device-plugin", FieldSelector: "spec.nodeName=" + n.name})
		if err == nil && want == (len(pods.Items) > 0) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("wait for the DaemonSet's pod on node %s to be %v: %v", n.name, want, err)
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// A cluster as it is before: Volcano's scheduler and device plugin. The pods that begin here run to
// the end of the test.
func (f *fleet) volcanoAlone(ctx context.Context, t *testing.T) {
	f.volcanoScheduler(ctx, t, false) // it reads the ConfigMap at its start only
	f.volcanoScheduler(ctx, t, true)
	for i, n := range f.nodes {
		f.survive(ctx, t, n, fmt.Sprintf("legacy-a-%d", i), 100+int64(i), 10)
		f.survive(ctx, t, n, fmt.Sprintf("legacy-b-%d", i), 1500, 0)
	}
	f.survive(ctx, t, f.nodes[0], "legacy-whole", fleetMiB/fleetFactor, 100)
	f.restartable(ctx, t, "legacy-restarts")
	f.fills(ctx, t, f.nodes[0], "legacy-fill")
	f.stillRunning(ctx, t)
}

// The real node is moved and Volcano's scheduler stays: forty pods at once get exactly what it
// wrote down.
func (f *fleet) ourPluginUnderVolcanosScheduler(ctx context.Context, t *testing.T) {
	f.install(ctx, t)
	f.toOurs(ctx, t, f.nodes[0])
	f.restarts(ctx, t, "legacy-restarts")
	f.fortyPods(ctx, t)
	f.fills(ctx, t, f.nodes[0], "stock-fill")
	f.stillRunning(ctx, t)
}

// Volcano's scheduler is replaced while three nodes still have Volcano's device plugin.
func (f *fleet) ourSchedulerOverVolcanosPlugin(ctx context.Context, t *testing.T) {
	f.volcanoScheduler(ctx, t, false)
	if out, err := f.cluster.Helm(ctx, "upgrade", sandbox.Release, f.cluster.Chart(), "--reuse-values",
		"--set", "scheduler.enabled=true", "--set", "devicePlugin.legacyReceipts=false"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := f.cluster.WaitReady(ctx, sandbox.Scheduler); err != nil {
		t.Fatal(err)
	}
	for i, n := range f.nodes {
		f.survive(ctx, t, n, fmt.Sprintf("ours-a-%d", i), 200+int64(i), 5)
		f.fills(ctx, t, n, fmt.Sprintf("ours-fill-%d", i))
	}
	two := f.run(ctx, t, fleetPod("two-devices").App("main", workload.Ask{Number: 2, Memory: 50}, "forever").Edit(on(f.nodes[1])))
	if phase := two.Annotations["volcano.sh/bind-phase"]; phase != "success" {
		t.Errorf("Volcano's device plugin has not confirmed the pod of our scheduler: phase %q", phase)
	}
	f.stillRunning(ctx, t)
}

// The other nodes follow while pods come and go.
func (f *fleet) nodesOneByOne(ctx context.Context, t *testing.T) {
	end := f.startLane(ctx, t, "forth")
	f.restartable(ctx, t, "ours-restarts")
	for i, n := range f.nodes[1:] {
		f.toOurs(ctx, t, n)
		f.survive(ctx, t, n, fmt.Sprintf("moved-%d", i), 100, 0)
	}
	end()
	f.stillRunning(ctx, t)
}

// All of it backwards: the nodes first, the scheduler last.
func (f *fleet) andBack(ctx context.Context, t *testing.T) {
	end := f.startLane(ctx, t, "back")
	for _, n := range f.nodes {
		f.toLegacy(ctx, t, n)
	}
	f.restarts(ctx, t, "ours-restarts")
	end()
	if out, err := f.cluster.Helm(ctx, "uninstall", sandbox.Release); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f.volcanoScheduler(ctx, t, true)
	for i, n := range f.nodes {
		f.fills(ctx, t, n, fmt.Sprintf("back-fill-%d", i))
	}
	f.stillRunning(ctx, t)
}
