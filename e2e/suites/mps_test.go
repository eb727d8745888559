// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/report"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
)

// clientsAllowed is what the suite lets one MPS server serve.
const clientsAllowed = 3

// testMPS puts the last device into mode mps, lets pods share it, and gives it back.
func testMPS(t *testing.T, w *world) {
	ctx, u := w.user(t, "mps", 2*time.Minute)
	config := fmt.Sprintf(`{"nodeconfig":[{"name":%q,"devices":[{"index":%d,"mode":"mps","mpsclients":%d}]}]}`, sandbox.NodeName, gpus-1, clientsAllowed)
	if err := u.ConfigureNodes(ctx, config); err != nil {
		t.Fatal(err)
	}
	d := w.deviceIn(ctx, t, sharing.MPS)
	if d.MaxClients != clientsAllowed {
		t.Errorf("the node publishes %d clients, want %d", d.MaxClients, clientsAllowed)
	}
	part(t, "limits", func(t *testing.T) { testMPSLimits(t, w) })
	part(t, "plugin_killed", func(t *testing.T) { testMPSPlugin(t, w, d.ID) })
	part(t, "updates", func(t *testing.T) { testMPSUpdates(t, w, d.ID) })
	part(t, "keeper_killed", func(t *testing.T) { testMPSKeeperKilled(t, w, d.ID) })
	part(t, "keeper_away", func(t *testing.T) { testMPSKeeperAway(t, w, d.ID) })
	part(t, "keeper_replaced", func(t *testing.T) { testMPSKeeperReplaced(t, w, d.ID) })
	part(t, "daemon_killed", func(t *testing.T) { testMPSDaemon(t, w, d.ID) })
	part(t, "clients", func(t *testing.T) { testMPSClients(t, w) })
	part(t, "users", func(t *testing.T) { testMPSUsers(t, w) })
	part(t, "tenants", func(t *testing.T) { testMPSTenants(t, w) })
	if err := u.ConfigureNodes(ctx, `{"nodeconfig":[]}`); err != nil {
		t.Fatal(err)
	}
	w.waitHealthy(ctx, t, gpus)
	w.awaitGone(ctx, t, w.mpsDir(d.ID), "the daemon's directory after the device left the mode")
}

// deviceIn waits for the one device of a mode to be ready and returns it.
func (w *world) deviceIn(ctx context.Context, t *testing.T, mode sharing.Mode) sharing.Device {
	t.Helper()
	for {
		inv := w.inventory(ctx, t)
		for _, d := range inv.Devices {
			if d.Mode == mode && d.Healthy {
				return d
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no device is ready in mode %s: %v\n%+v", mode, ctx.Err(), inv.Devices)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// mpsDir is where the daemon of a device has its directories.
func (w *world) mpsDir(id sharing.DeviceID) string {
	return filepath.Join(w.cluster.Dir(), "mps", string(id))
}

// awaitGone waits until there is no such file.
func (w *world) awaitGone(ctx context.Context, t *testing.T, path, what string) {
	t.Helper()
	for {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%s is still there: %v", what, ctx.Err())
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// inMPS begins a pod that accepts mode mps alone.
func inMPS(name string) *workload.Pod {
	return orderly(name).Annotate("volcano.sh/vgpu-mode", "mps")
}

// testMPSLimits: what each container sees and may have is what its placement says.
func testMPSLimits(t *testing.T, w *world) {
	ctx, u := w.user(t, "mps-limits", time.Minute)
	beyond := []string{"info", "env", "alloc", "900", "expect", "ok", "alloc", "200", "expect", "oom"}
	pods := []*corev1.Pod{
		inMPS("third").App("main", workload.Ask{Number: 1, Memory: 1000, Cores: 33}, beyond...).Build(),
		inMPS("half").App("main", workload.Ask{Number: 1, Memory: 3000, Cores: 50}, "info", "env", "alloc", "2900", "expect", "ok", "alloc", "200", "expect", "oom").Build(),
		inMPS("sum").App("main", workload.Ask{Number: 1, Memory: 1000}, "fork", "2", "alloc", "600", "hold", "2").Build(),
	}
	for _, p := range pods {
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		succeeds(ctx, t, u, p.Name)
	}
	limitsAreThePlacements(ctx, t, u, "third", 35) // of 108 multiprocessors
	limitsAreThePlacements(ctx, t, u, "half", 54)
	log, err := u.Log(ctx, "sum", "main")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(log, "result=CUDA_SUCCESS") != 1 || strings.Count(log, "result=CUDA_ERROR_OUT_OF_MEMORY") != 1 {
		t.Errorf("of two processes that want 600 of 1000 MiB each, one must get them:\n%s", log)
	}
}

// limitsAreThePlacements compares what a container saw with its annotation.
func limitsAreThePlacements(ctx context.Context, t *testing.T, u *user.User, name string, sms int) {
	t.Helper()
	p, err := u.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	log, err := u.Log(ctx, name, "main")
	if err != nil {
		t.Fatal(err)
	}
	placement, err := user.Placement(p)
	if err != nil {
		t.Fatal(err)
	}
	s := placement.Containers[0].Shares[0]
	if s.Mode != sharing.MPS {
		t.Errorf("%s was placed in mode %s", name, s.Mode)
	}
	for _, want := range []string{
		fmt.Sprintf("env CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM\n", int64(s.Memory/sharing.MiB)),
		fmt.Sprintf("env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d\n", s.Cores),
		fmt.Sprintf("env limits: device 0 %s memory=%d cores=0\n", s.Device, s.Memory),
		"env limits: policy disable\n",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("%s: the container lacks %q:\n%s", name, want, log)
		}
	}
	if got := report.Field(log, "info index=", "sms"); got != strconv.Itoa(sms) {
		t.Errorf("%s: it may use %s multiprocessors, want %d", name, got, sms)
	}
	if got := report.Field(log, "info index=", "uuid"); got != string(s.Device) {
		t.Errorf("%s: it sees device %s, want %s", name, got, s.Device)
	}
}

// testMPSPlugin: a device plugin that is killed leaves the daemon and its clients
// alone, and the next one takes it over.
func testMPSPlugin(t *testing.T, w *world, id sharing.DeviceID) {
	ctx, u := w.user(t, "mps-plugin", time.Minute)
	file := filepath.Join(w.mpsDir(id), "pipe", "nvidia-cuda-mps-control.pid")
	ask := workload.Ask{Number: 1, Memory: 1000, Cores: 30}
	if err := u.Create(ctx, inMPS("stays").App("main", ask, "alloc", "10", "expect", "ok", "hold", "4", "alloc", "10", "expect", "ok").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitLog(ctx, "stays", "main", "hold"); err != nil {
		t.Fatal(err)
	}
	before := w.pidIn(ctx, t, file)
	if err := w.cluster.Kill(sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.WaitReady(ctx, sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	joins(ctx, t, u, ask)
	succeeds(ctx, t, u, "stays")
	if after := w.pidIn(ctx, t, file); after != before {
		t.Errorf("the daemon was process %d and is %d", before, after)
	}
}

// joins lets a pod start, as a controller would: one that the kubelet refuses
// because the device plugin has not registered again yet is made anew.
func joins(ctx context.Context, t *testing.T, u *user.User, ask workload.Ask) {
	t.Helper()
	for i := 0; ; i++ {
		name := fmt.Sprintf("joins-%d", i)
		if err := u.Create(ctx, inMPS(name).App("main", ask, "alloc", "10", "expect", "ok").Build()); err != nil {
			t.Fatal(err)
		}
		p, err := u.WaitDone(ctx, name)
		if err == nil {
			err = u.Delete(ctx, name)
		}
		switch {
		case err != nil:
			t.Fatal(err)
		case p.Status.Phase == corev1.PodSucceeded:
			return
		case p.Status.Reason != "UnexpectedAdmissionError":
			t.Fatalf("%s: %s %s", name, p.Status.Reason, p.Status.Message)
		}
	}
}

// testMPSDaemon: a daemon that is killed is started again, and its clients' pods
// say what happened.
func testMPSDaemon(t *testing.T, w *world, id sharing.DeviceID) {
	ctx, u := w.user(t, "mps-daemon", time.Minute)
	file := filepath.Join(w.mpsDir(id), "pipe", "nvidia-cuda-mps-control.pid")
	ask := workload.Ask{Number: 1, Memory: 1000, Cores: 30}
	if err := u.Create(ctx, inMPS("victim").App("main", ask, "alloc", "10", "expect", "ok", "hold", "3", "alloc", "10", "forever").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitLog(ctx, "victim", "main", "hold"); err != nil {
		t.Fatal(err)
	}
	before := w.pidIn(ctx, t, file)
	if _, err := w.cluster.Run(ctx, "sh", "-c", fmt.Sprintf("kill -KILL %d", before)); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	text, err := u.WaitEvent(ctx, "victim", "MPSDaemonDied", string(id), "runs again")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("told after %.1f s: %s", time.Since(begin).Seconds(), text)
	if after := w.pidIn(ctx, t, file); after == before {
		t.Errorf("the daemon is still process %d", after)
	}
	if log, err := u.WaitLog(ctx, "victim", "main", "forever"); err != nil || !strings.Contains(log, "alloc mib=10 result=CUDA_ERROR_MPS_RPC_FAILURE") {
		t.Errorf("the client noticed nothing (%v):\n%s", err, log)
	}
	if err := u.Create(ctx, inMPS("next").App("main", ask, "alloc", "900", "expect", "ok", "alloc", "200", "expect", "oom").Build()); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, u, "next")
}

// pidIn reads a process number where it holds and where the file is: the daemon's directory is a
// file system of its own.
func (w *world) pidIn(ctx context.Context, t *testing.T, file string) int {
	t.Helper()
	text, err := w.cluster.Run(ctx, "cat", file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// testMPSClients: the scheduler gives a device no more clients than its server
// serves, and the next when one goes.
func testMPSClients(t *testing.T, w *world) {
	ctx, u := w.user(t, "mps-clients", time.Minute)
	ask := workload.Ask{Number: 1, Memory: 100}
	for i := range clientsAllowed {
		name := fmt.Sprintf("client-%d", i)
		if err := u.Create(ctx, inMPS(name).App("main", ask, "alloc", "10", "forever").Build()); err != nil {
			t.Fatal(err)
		}
		if _, err := u.WaitLog(ctx, name, "main", "forever"); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Create(ctx, inMPS("one-more").App("main", ask, "alloc", "10", "expect", "ok").Build(),
		inMPS("wide").App("main", workload.Ask{Number: 2, Memory: 100}, "info").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "one-more", "1 shared by as many containers as allowed (TooManyShares)"); err != nil {
		t.Error(err)
	}
	if _, err := u.WaitEvent(ctx, "wide", "1 in a mode that gives a container one device only (OneDevicePerContainer)"); err != nil {
		t.Error(err)
	}
	if err := u.Delete(ctx, "client-0", "wide"); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, u, "one-more")
}

// testMPSUsers: a pod of another user than the device's waits, and the scheduler says why.
func testMPSUsers(t *testing.T, w *world) {
	ctx, u := w.user(t, "mps-users", time.Minute)
	runs := func(name string, user int64) *corev1.Pod {
		return inMPS(name).AsUser(user).App("main", workload.Ask{Number: 1, Memory: 100}, "alloc", "10", "forever").Build()
	}
	if err := u.Create(ctx, runs("first", 1000)); err != nil {
		t.Fatal(err)
	}
	if log, err := u.WaitLog(ctx, "first", "main", "forever"); err != nil || !strings.Contains(log, "result=CUDA_SUCCESS") {
		t.Fatalf("the first user is not served (%v):\n%s", err, log)
	}
	if err := u.Create(ctx, runs("second", 2000)); err != nil {
		t.Fatal(err)
	}
	text, err := u.WaitEvent(ctx, "second", "1 serving containers of another user (OtherUser)")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(text)
	if err := u.Create(ctx, runs("same", 1000)); err != nil {
		t.Fatal(err)
	}
	if log, err := u.WaitLog(ctx, "same", "main", "forever"); err != nil || !strings.Contains(log, "result=CUDA_SUCCESS") {
		t.Errorf("a pod of the same user is not served (%v):\n%s", err, log)
	}
}

// testMPSTenants: a pod of another namespace waits for the device, and so does root; both are told
// why. When the first pod has ended, the other namespace's is served.
func testMPSTenants(t *testing.T, w *world) {
	ctx, blue := w.user(t, "mps-blue", time.Minute)
	_, red := w.user(t, "mps-red", time.Minute)
	ask := workload.Ask{Number: 1, Memory: 100}
	if err := blue.Create(ctx, inMPS("first").App("main", ask, "alloc", "10", "forever").Build(),
		inMPS("root").AsUser(0).App("main", ask, "forever").Build()); err != nil {
		t.Fatal(err)
	}
	if log, err := blue.WaitLog(ctx, "first", "main", "forever"); err != nil || !strings.Contains(log, "result=CUDA_SUCCESS") {
		t.Fatalf("the first namespace is not served (%v):\n%s", err, log)
	}
	if _, err := blue.WaitEvent(ctx, "root", "1 refusing containers that run as root (RootUser)"); err != nil {
		t.Error(err)
	}
	if err := red.Create(ctx, inMPS("second").App("main", ask, "alloc", "10", "expect", "ok").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := red.WaitEvent(ctx, "second", "1 serving pods of another namespace (OtherNamespace)"); err != nil {
		t.Error(err)
	}
	if err := blue.Delete(ctx, "first"); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, red, "second")
}
