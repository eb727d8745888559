// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
)

// An administrator may offer less than pods hold, at any time. Each pod is told, and none ends,
// also when the kubelet, or the whole machine, starts after that.
func testEditsEndNothing(t *testing.T, w *world) {
	ctx, u := w.user(t, "edits", 3*time.Minute)
	t.Cleanup(func() { w.offerEverything(t) })
	const pods = 6
	devices := map[string]sharing.DeviceID{}
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		p := orderly(name).App("main", workload.Ask{Number: 1, Memory: 2000}, "info", "env", "forever").Edit(func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		})
		started(ctx, t, u, p)
		devices[name] = sharesOf(ctx, t, u, name)[0].Device
	}

	if err := u.ConfigureDevices(ctx, "nvidia: {gpuMemoryFactor: 1024}"); err != nil {
		t.Fatal(err)
	}
	requireToldOf(ctx, t, u, devices, "larger units")
	hide := fmt.Sprintf(`{"nodeconfig":[{"name":%q,"devicesplitcount":1,"filterdevices":{"uuid":[%q]}}]}`, sandbox.NodeName, devices["p0"])
	if err := u.ConfigureNodes(ctx, hide); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "p0", "DeviceShareKept", "no longer offers it"); err != nil {
		t.Error(err)
	}
	if err := w.nodeSaid(ctx, "DeviceOfferExceeded", string(devices["p0"])); err != nil {
		t.Error(err)
	}

	if err := w.cluster.Restart(sandbox.Kubelet); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.WaitReady(ctx, sandbox.Kubelet); err != nil {
		t.Fatal(err)
	}
	// The kubelet has looked at its pods, the oldest first, once it has taken one more.
	if err := u.Create(ctx, pod("plain").Plain("main", "sleep 1000").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, "plain"); err != nil {
		t.Fatal(err)
	}
	for name := range devices {
		if p, err := u.Get(ctx, name); err != nil || p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("after a start of the kubelet pod %s is %s (%s: %s), %v", name, p.Status.Phase, p.Status.Reason, p.Status.Message, err)
		}
	}
	w.rebootWithLess(ctx, t, u, devices)
}

// rebootWithLess reboots the machine with a device hidden and fewer slots than there were.
func (w *world) rebootWithLess(ctx context.Context, t *testing.T, u *user.User, devices map[string]sharing.DeviceID) {
	t.Helper()
	if err := w.cluster.RebootGPUs(ctx); err != nil {
		t.Fatal(err)
	}
	hidden, back := devices["p0"], 0
	for name, device := range devices {
		p, err := u.Wait(ctx, name, "back, or failed", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			isBack := len(s) == 1 && s[0].RestartCount > 0 && s[0].State.Running != nil
			return isBack || p.Status.Phase == corev1.PodFailed || device == hidden
		})
		switch {
		case err != nil:
			t.Error(err)
		case strings.Contains(p.Status.Message, "no longer healthy") || strings.HasPrefix(p.Status.Reason, "OutOf"):
			t.Errorf("pod %s was ended: %s: %s", name, p.Status.Reason, p.Status.Message)
		case p.Status.Phase == corev1.PodRunning:
			back++ // others met a kubelet with which no device plugin had registered yet
		}
	}
	t.Logf("%d of %d pods are back after the reboot", back, len(devices))
}

// requireToldOf awaits an event on each pod that says why it keeps what it has.
func requireToldOf(ctx context.Context, t *testing.T, u *user.User, devices map[string]sharing.DeviceID, words string) {
	t.Helper()
	for name := range devices {
		if _, err := u.WaitEvent(ctx, name, "DeviceShareKept", words); err != nil {
			t.Error(err)
		}
	}
}

// offerEverything takes back what a suite wrote into the ConfigMaps.
func (w *world) offerEverything(t *testing.T) {
	ctx, u := w.user(t, "edits-undone", time.Minute)
	if err := u.ConfigureNodes(ctx, `{"nodeconfig":[]}`); err != nil {
		t.Error(err)
	}
	if err := u.ConfigureDevices(ctx, "nvidia: {}"); err != nil {
		t.Error(err)
	}
}
