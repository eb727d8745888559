// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
)

// The webhook completes what a user left out, and a pod it never saw is refused
// by the scheduler with the line to add.
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
	t.Run("a_pod_it_never_saw_is_refused_by_the_scheduler", func(t *testing.T) {
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
		if err := u.Create(ctx, pod("unseen").App("main", workload.Ask{Memory: 256}, "info").Build()); err != nil {
			t.Fatalf("the webhook is down and must fail open: %v", err)
		}
		text, err := u.WaitEvent(ctx, "unseen", "volcano.sh/vgpu-number: 1")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the pod's event: %s", text)
	})
}
