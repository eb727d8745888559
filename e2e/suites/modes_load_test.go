// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/user"
	"deviceshare/sharing"
)

// Modes are edited every second while pods of a set come and go: every one of them
// runs in the end, and no device serves two modes.
func testEditsUnderLoad(t *testing.T, w *world) {
	const replicas, edits = 8, 12
	ctx, u := w.user(t, "load", 4*time.Minute)
	w.replicas(ctx, t, u.Namespace(), replicas, ask("template", 3000).Annotate("volcano.sh/vgpu-policy", "spread").Build())
	t.Cleanup(func() {
		clean, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		if err := w.cluster.Client().AppsV1().ReplicaSets(u.Namespace()).Delete(clean, "late", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	modes := []sharing.Mode{sharing.HAMiCore, sharing.MPS, sharing.TimeSlicing, sharing.MIG}
	for i := range edits {
		w.mode(ctx, t, u, fmt.Sprintf(`"operatingmode":%q,"devices":[{"index":0,"mode":%q},{"index":2,"mode":"hami-core"}]`,
			modes[i%3], modes[(i+1)%len(modes)]))
		pods, err := u.Pods(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for k := range pods {
			if k%3 != i%3 {
				continue
			}
			err := w.cluster.Client().CoreV1().Pods(u.Namespace()).Delete(ctx, pods[k].Name, metav1.DeleteOptions{})
			if err != nil && ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		sleep(ctx, time.Second)
	}
	begin := time.Now()
	pods := w.allRun(ctx, t, u, replicas)
	t.Logf("%d edits; all %d pods ran %.0f s after the last", edits, replicas, time.Since(begin).Seconds())
	on := map[sharing.DeviceID]sharing.Mode{}
	for i := range pods {
		s := partitionOf(t, &pods[i])
		if m, there := on[s.Device]; there && m != s.Mode {
			t.Errorf("device %s serves modes %s and %s", s.Device, m, s.Mode)
		}
		on[s.Device] = s.Mode
	}
}

// allRun waits until all pods of the set run and nothing else is left of it.
func (w *world) allRun(ctx context.Context, t *testing.T, u *user.User, n int) []corev1.Pod {
	t.Helper()
	for {
		pods, err := u.Pods(ctx)
		running := 0
		for i := range pods {
			if pods[i].Status.Phase == corev1.PodFailed && pods[i].DeletionTimestamp == nil {
				t.Fatalf("pod %s failed: %s: %s", pods[i].Name, pods[i].Status.Reason, pods[i].Status.Message)
			}
			s := pods[i].Status.ContainerStatuses
			if pods[i].DeletionTimestamp == nil && len(s) == 1 && s[0].State.Running != nil {
				running++
			}
		}
		if err == nil && running == n && len(pods) == n {
			return pods
		}
		if ctx.Err() != nil {
			for i := range pods {
				said, _ := u.Said(context.Background(), pods[i].Name)
				t.Logf("%s %s: %q", pods[i].Name, pods[i].Status.Phase, said)
			}
			t.Fatalf("%d of %d pods run: %v", running, n, ctx.Err())
		}
		sleep(ctx, 200*time.Millisecond)
	}
}
