// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/report"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
)

// churner is a pod that uses its device all the time: it takes memory up to its limit, is refused
// what goes past it, runs a kernel, and gives the memory back. It counts what is not so.
type churner struct {
	u      *user.User
	name   string
	rounds int // as it printed last
}

// churns starts one, with 1000 MiB, and returns when it is at work.
func churns(ctx context.Context, t *testing.T, u *user.User, name string) *churner {
	t.Helper()
	ask := workload.Ask{Number: 1, Memory: 1000, Cores: 30}
	if err := u.Create(ctx, inMPS(name).App("main", ask, "churn", "900", "200").Build()); err != nil {
		t.Fatal(err)
	}
	c := &churner{u: u, name: name}
	c.goesOn(ctx, t, "it started")
	return c
}

// goesOn waits until the pod has done some more rounds, and fails if one was not as it must be.
func (c *churner) goesOn(ctx context.Context, t *testing.T, after string) {
	t.Helper()
	const some = 20
	for last := ""; ; sleep(ctx, 200*time.Millisecond) {
		// The log of a container that has not started yet cannot be read.
		if log, err := c.u.Log(ctx, c.name, "main"); err == nil {
			if i := strings.LastIndex(log, "churn rounds="); i >= 0 {
				last = log[i:]
			}
		}
		rounds, _ := strconv.Atoi(report.Field(last, "churn", "rounds"))
		switch {
		case last != "" && report.Field(last, "churn", "errors") != "0":
			t.Fatalf("%s has CUDA errors after %s: %s", c.name, after, last)
		case rounds >= c.rounds+some:
			c.rounds = rounds
			return
		case ctx.Err() != nil:
			t.Fatalf("%s stands still after %s: %v: %s", c.name, after, ctx.Err(), last)
		}
	}
}

// disturbance is something that happens to the device plugin.
type disturbance struct {
	name string
	does func(context.Context, *testing.T)
}

// testMPSUpdates: whatever happens to the device plugin, clients of an MPS daemon meet no CUDA
// error and are held to their limits, the daemon stays the same process, and pods can join.
func testMPSUpdates(t *testing.T, w *world, id sharing.DeviceID) {
	ctx, u := w.user(t, "mps-updates", 5*time.Minute)
	clients := []*churner{churns(ctx, t, u, "one"), churns(ctx, t, u, "two")}
	file := filepath.Join(w.mpsDir(id), "pipe", "nvidia-cuda-mps-control.pid")
	daemon, keeper := w.pidIn(ctx, t, file), w.onlyPodOf(ctx, t, sandbox.Keeper)
	for _, d := range w.disturbances() {
		d.does(ctx, t)
		if t.Failed() {
			return
		}
		if err := w.cluster.WaitReady(ctx, sandbox.DevicePlugin); err != nil {
			t.Fatal(err)
		}
		for _, c := range clients {
			c.goesOn(ctx, t, d.name)
		}
		joins(ctx, t, u, workload.Ask{Number: 1, Memory: 1000, Cores: 30})
		if now := w.pidIn(ctx, t, file); now != daemon {
			t.Errorf("after %s the daemon is process %d, and was %d", d.name, now, daemon)
		}
		if now := w.onlyPodOf(ctx, t, sandbox.Keeper); now.UID != keeper.UID || restarts(now) != restarts(keeper) {
			t.Errorf("after %s the keeper is another one", d.name)
		}
		t.Logf("after %s: %d rounds without an error", d.name, clients[0].rounds+clients[1].rounds)
	}
}

// disturbances are what happens to device plugins in clusters.
func (w *world) disturbances() []disturbance {
	return []disturbance{
		{"a kill", func(_ context.Context, t *testing.T) {
			if err := w.cluster.Kill(sandbox.DevicePlugin); err != nil {
				t.Fatal(err)
			}
		}},
		{"a deletion", func(ctx context.Context, t *testing.T) {
			before := w.onlyPodOf(ctx, t, sandbox.DevicePlugin)
			w.deletePod(ctx, t, before)
			w.awaitReplaced(ctx, t, sandbox.DevicePlugin, before)
		}},
		{"an update", func(ctx context.Context, t *testing.T) { w.roll(ctx, t, `"yes"`) }},
		{"a rollback", func(ctx context.Context, t *testing.T) { w.roll(ctx, t, "null") }},
	}
}

// roll gives the pods of both DaemonSets another template, as a new version of the chart does, and
// returns when the device plugin's is there.
func (w *world) roll(ctx context.Context, t *testing.T, updated string) {
	t.Helper()
	before := w.onlyPodOf(ctx, t, sandbox.DevicePlugin)
	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"example.com/updated":` + updated + `}}}}}`)
	for _, component := range []string{sandbox.Keeper, sandbox.DevicePlugin} {
		_, err := w.cluster.Client().AppsV1().DaemonSets(sandbox.Namespace).Patch(ctx, "deviceshare-"+component, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.awaitReplaced(ctx, t, sandbox.DevicePlugin, before)
}

func restarts(p *corev1.Pod) int32 {
	n := int32(0)
	for _, c := range p.Status.ContainerStatuses { // none before the kubelet has said something
		n += c.RestartCount
	}
	return n
}

// hasRun reports whether the program of a container has begun.
func hasRun(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.RestartCount != 0
	})
}

// podsOf are the pods of a part of the product.
func (w *world) podsOf(ctx context.Context, t *testing.T, component string) []corev1.Pod {
	t.Helper()
	list, err := w.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=deviceshare-" + component})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// onlyPodOf waits until a part of the product has one pod, and it runs.
func (w *world) onlyPodOf(ctx context.Context, t *testing.T, component string) *corev1.Pod {
	t.Helper()
	for {
		pods := w.podsOf(ctx, t, component)
		if len(pods) == 1 && len(pods[0].Status.ContainerStatuses) == 1 && pods[0].Status.ContainerStatuses[0].State.Running != nil {
			return &pods[0]
		}
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%s has %d pods: %v", component, len(pods), ctx.Err())
		}
	}
}

func (w *world) deletePod(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := w.cluster.Client().CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// replaceKeeper deletes the keeper of MPS daemons and waits until another one is ready.
func (w *world) replaceKeeper(ctx context.Context, t *testing.T) {
	t.Helper()
	old := w.onlyPodOf(ctx, t, sandbox.Keeper)
	w.deletePod(ctx, t, old)
	w.awaitReplaced(ctx, t, sandbox.Keeper, old)
	if err := w.cluster.WaitReady(ctx, sandbox.Keeper); err != nil {
		t.Fatal(err)
	}
}

// awaitReplaced waits until a part of the product has another pod, which runs.
func (w *world) awaitReplaced(ctx context.Context, t *testing.T, component string, before *corev1.Pod) {
	t.Helper()
	for w.onlyPodOf(ctx, t, component).UID == before.UID {
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%s was not replaced: %v", component, ctx.Err())
		}
	}
}

// testMPSKeeperKilled: the daemons end with the keeper. Clients meet CUDA errors and their pods are
// told; a new daemon is there as soon as a new keeper is.
func testMPSKeeperKilled(t *testing.T, w *world, id sharing.DeviceID) {
	ctx, u := w.user(t, "mps-keeper-killed", 2*time.Minute)
	victim := churns(ctx, t, u, "victim")
	file := filepath.Join(w.mpsDir(id), "pipe", "nvidia-cuda-mps-control.pid")
	before := w.pidIn(ctx, t, file)
	if err := w.cluster.Kill(sandbox.Keeper); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitLog(ctx, victim.name, "main", "last=CUDA_ERROR_MPS_RPC_FAILURE"); err != nil {
		t.Error(err)
	}
	text, err := u.WaitEvent(ctx, victim.name, "MPSDaemonDied", string(id), "runs again")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(text)
	if now := w.pidIn(ctx, t, file); now == before {
		t.Errorf("the daemon is still process %d", now)
	}
	if err := u.Delete(ctx, victim.name); err != nil {
		t.Fatal(err)
	}
	churns(ctx, t, u, "next")
}

// testMPSKeeperAway: without a keeper no pod starts on a device in mode mps, and people are told
// why; with one it goes on by itself. Devices in other modes go on all the time.
func testMPSKeeperAway(t *testing.T, w *world, id sharing.DeviceID) {
	ctx, u := w.user(t, "mps-keeper-away", 2*time.Minute)
	if err := w.cluster.StopComponent(sandbox.Keeper); err != nil {
		t.Fatal(err)
	}
	t.Log(w.awaitUnhealthy(ctx, t, id, "no keeper of MPS daemons runs on this node"))
	if err := w.nodeSaid(ctx, "GPUModeInterrupted", "no keeper of MPS daemons runs on this node"); err != nil {
		t.Error(err)
	}
	ask := workload.Ask{Number: 1, Memory: 1000}
	if err := u.Create(ctx, inMPS("waits").App("main", ask, "alloc", "900", "expect", "ok", "alloc", "200", "expect", "oom").Build()); err != nil {
		t.Fatal(err)
	}
	runs(ctx, t, u, "other-mode")
	if _, err := u.WaitEvent(ctx, "waits", "1 out of service (Unhealthy)"); err != nil {
		t.Error(err)
	}
	if err := w.cluster.StartComponent(sandbox.Keeper); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, u, "waits")
	runs(ctx, t, u, "other-mode-again")
	if err := w.nodeSaid(ctx, "GPUModeRestored", string(id)); err != nil {
		t.Error(err)
	}
}

// awaitUnhealthy waits until a device is published as taking no pods for a reason, and returns
// that.
func (w *world) awaitUnhealthy(ctx context.Context, t *testing.T, id sharing.DeviceID, why string) string {
	t.Helper()
	for {
		inv := w.inventory(ctx, t)
		d, ok := inv.Device(id)
		if ok && !d.Healthy && strings.Contains(d.Reason, why) {
			return d.Reason
		}
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("device %s is not taken out of use because %q: %v\n%+v", id, why, ctx.Err(), d)
		}
	}
}

// testMPSKeeperReplaced: a keeper whose pod is deleted, as for an update, waits for the pods that
// use its daemons. New ones wait for the next keeper.
func testMPSKeeperReplaced(t *testing.T, w *world, id sharing.DeviceID) {
	ctx, u := w.user(t, "mps-keeper-replaced", 3*time.Minute)
	stays := churns(ctx, t, u, "stays")
	old := w.onlyPodOf(ctx, t, sandbox.Keeper)
	w.deletePod(ctx, t, old)
	t.Log(w.awaitUnhealthy(ctx, t, id, "is being replaced"))
	ask := workload.Ask{Number: 1, Memory: 1000}
	if err := u.Create(ctx, inMPS("waits").App("main", ask, "alloc", "900", "expect", "ok", "alloc", "200", "expect", "oom").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "waits", "1 out of service (Unhealthy)"); err != nil {
		t.Error(err)
	}
	// Longer than a keeper waits after the last container.
	for begin := time.Now(); time.Since(begin) < 15*time.Second; {
		stays.goesOn(ctx, t, "the deletion of the keeper")
	}
	if pods := w.podsOf(ctx, t, sandbox.Keeper); len(pods) != 1 || pods[0].UID != old.UID {
		t.Errorf("there are %d keepers, or another one", len(pods))
	}
	if err := u.Delete(ctx, stays.name); err != nil {
		t.Fatal(err)
	}
	w.awaitReplaced(ctx, t, sandbox.Keeper, old)
	succeeds(ctx, t, u, "waits")
}

// testMPSUninstall uninstalls the chart under a client, which goes on: nothing of the product is
// left at the API server but the keeper's pod, and that goes with the client. What is left on the
// node is taken back by the next installation.
func testMPSUninstall(t *testing.T, w *world) {
	ctx, u := w.user(t, "mps-uninstall", 4*time.Minute)
	w.hasUsualDevices(ctx, t)
	config := fmt.Sprintf(`{"nodeconfig":[{"name":%q,"devices":[{"index":%d,"mode":"mps"}]}]}`, sandbox.NodeName, gpus-1)
	if err := u.ConfigureNodes(ctx, config); err != nil {
		t.Fatal(err)
	}
	d := w.deviceIn(ctx, t, sharing.MPS)
	client := churns(ctx, t, u, "client")
	if out, err := w.cluster.Helm(ctx, "uninstall", sandbox.Release); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	isKeeper := func(traces []string) bool {
		return len(traces) == 1 && strings.HasPrefix(traces[0], "pods deviceshare-keeper-")
	}
	w.awaitTraces(ctx, t, isKeeper)
	// Longer than a keeper waits after the last container.
	for begin := time.Now(); time.Since(begin) < 15*time.Second; {
		client.goesOn(ctx, t, "the uninstallation")
	}
	w.awaitTraces(ctx, t, isKeeper)
	if err := u.Delete(ctx, client.name); err != nil {
		t.Fatal(err)
	}
	w.awaitTraces(ctx, t, func(traces []string) bool { return len(traces) == 0 })
	for _, line := range w.nodeTraces(ctx, t) {
		if strings.HasPrefix(line, "process ") {
			t.Errorf("left on the node: %s", line)
		}
	}
	values := filepath.Join(w.cluster.Dir(), "config", "values.json")
	if out, err := w.cluster.Helm(ctx, "install", sandbox.Release, w.cluster.Chart(), "--values", values); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, component := range []string{sandbox.Scheduler, sandbox.Webhook, sandbox.Keeper, sandbox.DevicePlugin} {
		if err := w.cluster.WaitReady(ctx, component); err != nil {
			t.Fatal(err)
		}
	}
	w.waitHealthy(ctx, t, gpus)
	w.awaitGone(ctx, t, w.mpsDir(d.ID), "the daemon's directory after the next installation")
}

// awaitTraces waits until what the product has at the API server is as wanted.
func (w *world) awaitTraces(ctx context.Context, t *testing.T, wanted func([]string) bool) {
	t.Helper()
	for {
		traces := w.traces(ctx, t)
		if wanted(traces) {
			return
		}
		if sleep(ctx, time.Second); ctx.Err() != nil {
			t.Fatalf("at the API server there is %q: %v", traces, ctx.Err())
		}
	}
}
