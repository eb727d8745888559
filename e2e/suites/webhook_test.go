// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// The webhook completes what a user left out. A pod that it never saw, and that would wait for
// ever, is refused when it is created, with the line to add; what controllers make comes when it is
// back.
func testWebhook(t *testing.T, w *world) {
	t.Run("completes_number_and_scheduler", func(t *testing.T) {
		ctx, u := w.user(t, "webhook", time.Minute)
		p := pod("memory-only").App("main", workload.Ask{Memory: 256}, "info", "forever").
			Edit(func(p *corev1.Pod) { p.Spec.SchedulerName = "" }).Build()
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
		got, err := u.WaitRunning(ctx, "memory-only")
		if err != nil {
			t.Fatal(err)
		}
		number := got.Spec.Containers[0].Resources.Limits[workload.Number]
		if got.Spec.SchedulerName != "volcano" || number.Value() != 1 {
			t.Errorf("scheduler %q, number %v: want volcano and 1", got.Spec.SchedulerName, number.Value())
		}
	})
	t.Run("a_pod_it_never_saw_is_refused_with_the_line_to_add", func(t *testing.T) {
		ctx, u := w.user(t, "no-webhook", 2*time.Minute)
		if err := w.cluster.StopComponent(sandbox.Webhook); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.cluster.StartComponent(sandbox.Webhook); err != nil {
				t.Error(err)
			}
			again, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
			defer cancel()
			if err := w.cluster.WaitReady(again, sandbox.Webhook); err != nil {
				t.Error(err)
			}
		})
		impossible(ctx, t, u)
		if err := u.Create(ctx, pod("complete").App("main", workload.Ask{Number: 1, Memory: 256}, "info").Build()); err != nil {
			t.Fatalf("the webhook is down and must fail open: %v", err)
		}
		succeeds(ctx, t, u, "complete")
	})
}

// impossible creates pods that cannot get devices as they are written.
func impossible(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	full := workload.Ask{Number: 1, Memory: 256}
	for want, p := range map[string]*workload.Pod{
		"add volcano.sh/vgpu-number: 1": pod("unseen").App("main", workload.Ask{Memory: 256}, "info"),
		"say schedulerName: volcano": pod("unseen").App("main", full, "info").
			Edit(func(p *corev1.Pod) { p.Spec.SchedulerName = corev1.DefaultSchedulerName }),
		"use spec.nodeSelector": pod("unseen").App("main", full, "info").Edit(func(p *corev1.Pod) { p.Spec.NodeName = sandbox.NodeName }),
		"resources.limits: memory or compute of a device without a device": pod("unseen").Init("first", workload.Ask{Cores: 10}, "info").App("main", full, "info"),
	} {
		err := u.Create(ctx, p.Build())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a pod that cannot get devices is answered with %v, want %q", err, want)
		} else {
			t.Log(err)
		}
	}
	if err := u.Create(ctx, pod("asks-for-nothing").Plain("main", "true").Edit(func(p *corev1.Pod) { p.Spec.SchedulerName = "" }).Build()); err != nil {
		t.Errorf("a pod that asks for nothing: %v", err)
	}
}
