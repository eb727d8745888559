// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// What a container cannot do, whichever way it reaches the driver. The CUDA
// client exits with an error when an expectation does not hold, so a pod that
// succeeds is the proof.
func testIsolation(t *testing.T, w *world) {
	ctx, u := w.user(t, "isolation", 3*time.Minute)
	ask := workload.Ask{Number: 1, Memory: 1000}
	pods := map[string]*corev1.Pod{
		"neighbour": pod("neighbour").App("main", ask, "alloc", "800", "expect", "ok", "hold", "8", "alloc", "100", "expect", "ok").Build(),
		"linked":    pod("linked").App("main", ask, append([]string{"via", "link"}, heldToShare()...)...).Build(),
		"dlsym":     pod("dlsym").App("main", ask, append([]string{"via", "dlsym"}, heldToShare()...)...).Build(),
		"getproc":   pod("getproc").App("main", ask, append([]string{"via", "getproc"}, heldToShare()...)...).Build(),
		"async":     pod("async").App("main", ask, "alloc-async", "900", "expect", "ok", "alloc-async", "200", "expect", "oom").Build(),
		"managed":   pod("managed").App("main", ask, "alloc-managed", "900", "expect", "ok", "alloc-managed", "200", "expect", "oom").Build(),
		"override": pod("override").App("main", ask, heldToShare()...).Edit(func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{
				{Name: "CUDA_DEVICE_MEMORY_LIMIT_0", Value: "80000m"}, {Name: "CUDA_DEVICE_MEMORY_LIMIT", Value: "80000m"},
				{Name: "CUDA_DISABLE_CONTROL", Value: "true"}, {Name: "LD_PRELOAD", Value: ""},
			}
		}).Build(),
		"two-processes": pod("two-processes").App("main", ask, "fork", "2", "alloc", "600", "hold", "3").Build(),
	}
	for _, p := range pods {
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	for name := range pods {
		succeeds(ctx, t, u, name)
	}
	log, err := u.Log(ctx, "two-processes", "main")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(log, "result=CUDA_SUCCESS") != 1 || strings.Count(log, "result=CUDA_ERROR_OUT_OF_MEMORY") != 1 {
		t.Errorf("of two processes that want 600 of 1000 MiB each, one must get them:\n%s", log)
	}
	wholeDeviceIsUntouched(ctx, t, u)
}

// succeeds expects a pod to end well.
func succeeds(ctx context.Context, t *testing.T, u *user.User, name string) bool {
	t.Helper()
	p, err := u.WaitDone(ctx, name)
	if err != nil {
		t.Error(err)
		return false
	}
	if p.Status.Phase != corev1.PodSucceeded {
		log, _ := u.Log(ctx, name, "main")
		t.Errorf("%s: the container did what it must not, or could not do what it may: %s %s\n%s", name, p.Status.Reason, p.Status.Message, log)
	}
	return p.Status.Phase == corev1.PodSucceeded
}

// A container that got a whole device has no interception at all.
func wholeDeviceIsUntouched(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	if err := u.Create(ctx, pod("whole").App("main", workload.Ask{Number: 1}, "info", "env", "alloc", "70000", "expect", "ok").Build()); err != nil {
		t.Fatal(err)
	}
	p, err := u.WaitDone(ctx, "whole")
	if err != nil {
		t.Fatal(err)
	}
	log, err := u.Log(ctx, "whole", "main")
	if err != nil {
		t.Fatal(err)
	}
	if p.Status.Phase != corev1.PodSucceeded {
		t.Errorf("a whole device must be usable whole:\n%s", log)
	}
	for _, word := range []string{"vgpu-limits", "CUDA_DEVICE_MEMORY_LIMIT", "libvgpu=mapped"} {
		if strings.Contains(log, word) {
			t.Errorf("a container with a whole device sees %s:\n%s", word, log)
		}
	}
}
