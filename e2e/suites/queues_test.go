// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// queueName is the annotation by which a pod without a group says its queue.
const queueName = "scheduling.volcano.sh/queue-name"

// queue makes a queue for the time of the test and waits until it is open.
func (w *world) queue(ctx context.Context, t *testing.T, name, parent string, capability map[string]any) {
	t.Helper()
	q := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": workload.PodGroups().GroupVersion().String(), "kind": "Queue", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"weight": int64(1), "reclaimable": true},
	}}
	if parent != "" {
		q.Object["spec"].(map[string]any)["parent"] = parent
	}
	if capability != nil {
		q.Object["spec"].(map[string]any)["capability"] = capability
	}
	queues := w.resources(t)(q)
	if _, err := queues.Create(ctx, q, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := queues.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	for {
		got, err := queues.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if state, _, _ := unstructured.NestedString(got.Object, "status", "state"); state == "Open" {
			return
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// of begins a pod of a queue that runs until it is deleted.
func of(queue, name string, ask workload.Ask) *workload.Pod {
	return pod(name).App("main", ask, "forever").Annotate(queueName, queue)
}

// running creates a pod and waits until it runs.
func running(ctx context.Context, t *testing.T, u *user.User, p *corev1.Pod) {
	t.Helper()
	if err := u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, p.Name); err != nil {
		t.Fatal(err)
	}
}

// areHeldBack checks that pods were not given a node. Call it after a later pod of the queue has
// started, so that the scheduler has seen them.
func areHeldBack(ctx context.Context, t *testing.T, u *user.User, names ...string) {
	t.Helper()
	for _, name := range names {
		p, err := u.Get(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Spec.NodeName != "" {
			t.Errorf("pod %s was placed beyond the limit of its queue", name)
		}
	}
}

// The capability of a queue holds for number times memory, for whole devices and for compute. By
// sums as written, all of these pods would be within it.
func testQueues(t *testing.T, w *world) {
	ctx, u := w.user(t, "queues", 3*time.Minute)
	w.queue(ctx, t, "short", "", map[string]any{"volcano.sh/vgpu-memory": int64(140000), "volcano.sh/vgpu-cores": int64(250)})
	running(ctx, t, u, of("short", "pair", workload.Ask{Number: 2, Memory: 40000, Cores: 20}).Build())
	for _, p := range []*corev1.Pod{
		of("short", "whole", workload.Ask{Number: 1}).Build(),
		of("short", "wide", workload.Ask{Number: 3, Memory: 20001, Cores: 10}).Build(),
		of("short", "busy", workload.Ask{Number: 3, Memory: 1000, Cores: 71}).Build(),
	} {
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	running(ctx, t, u, of("short", "fits", workload.Ask{Number: 1, Memory: 55000, Cores: 10}).Build())
	areHeldBack(ctx, t, u, "whole", "wide", "busy")
	running(ctx, t, u, pod("elsewhere").App("main", workload.Ask{Number: 1}, "forever").Build())
	if err := u.Delete(ctx, "wide", "busy", "pair"); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, "whole"); err != nil {
		t.Errorf("the queue has room again: %v", err)
	}
}

// The capability of a queue holds for the queues below it together, and a gang is within it
// together or waits.
func testQueueHierarchy(t *testing.T, w *world) {
	ctx, u := w.user(t, "queue-hierarchy", 3*time.Minute)
	w.queue(ctx, t, "department", "", map[string]any{"volcano.sh/vgpu-memory": int64(100000)})
	w.queue(ctx, t, "team-a", "department", nil)
	w.queue(ctx, t, "team-b", "department", map[string]any{"volcano.sh/vgpu-memory.nosuchmodel": int64(0)})
	running(ctx, t, u, of("team-a", "large", workload.Ask{Number: 2, Memory: 30000}).Build())

	group := workload.Group("gang", 2)
	if err := unstructured.SetNestedField(group.Object, "team-b", "spec", "queue"); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(w.cluster.RestConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(workload.PodGroups()).Namespace(u.Namespace()).Create(ctx, group, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		p := pod(name).App("main", workload.Ask{Number: 1, Memory: 25000}, "forever").Annotate(workload.GroupKey, "gang").Build()
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	running(ctx, t, u, of("team-b", "small", workload.Ask{Number: 1, Memory: 10000}).Build())
	areHeldBack(ctx, t, u, "first", "second")
	if err := u.Delete(ctx, "large"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		if _, err := u.WaitRunning(ctx, name); err != nil {
			t.Errorf("the queue above has room again: %v", err)
		}
	}
}
