// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
)

// For each placed pod the scheduler makes exactly one write that concerns
// devices, the Binding; a gang that was given up leaves no annotation behind.
func testWrites(t *testing.T, w *world) {
	ctx, u := w.user(t, "writes", 3*time.Minute)
	const placed = 6
	for i := range placed {
		if err := u.Create(ctx, pod(fmt.Sprintf("placed-%d", i)).App("main", workload.Ask{Number: 1, Memory: 500}, "forever").Build()); err != nil {
			t.Fatal(err)
		}
	}
	w.group(t, u.Namespace(), "half", gpus+1)
	for i := range gpus + 1 { // each wants a device for itself: one too many
		p := pod(fmt.Sprintf("gang-%d", i)).App("main", workload.Ask{Number: 1, Memory: memoryMiB - 1000}, "forever").
			Annotate(workload.GroupKey, "half").Build()
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	for i := range placed {
		if _, err := u.WaitRunning(ctx, fmt.Sprintf("placed-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	gang := make([]string, gpus+1)
	for i := range gang {
		gang[i] = fmt.Sprintf("gang-%d", i)
	}
	text, err := u.WaitAnyEvent(ctx, gang, "devices fit")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the gang waits: %s", text)
	writes := w.deviceWrites(t)
	for i := range placed {
		got := about(writes, u.Namespace(), fmt.Sprintf("placed-%d", i))
		if len(got) != 1 || got[0].ObjectRef.Subresource != "binding" || got[0].Verb != "create" {
			t.Errorf("pod placed-%d: want exactly one write that concerns devices, its binding; got %v", i, got)
		}
	}
	for i := range gpus + 1 {
		name := fmt.Sprintf("gang-%d", i)
		if got := about(writes, u.Namespace(), name); len(got) != 0 {
			t.Errorf("pod %s of a gang that does not fit was written: %v", name, got)
		}
		p, err := u.Get(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		for key := range p.Annotations {
			if strings.HasPrefix(key, "volcano.sh/vgpu-") || key == "volcano.sh/devices-to-allocate" {
				t.Errorf("pod %s of a gang that does not fit carries %s", name, key)
			}
		}
	}
	for _, e := range writes {
		if e.ObjectRef.Resource == "nodes" {
			t.Errorf("the scheduler wrote to node %s: %s", e.ObjectRef.Name, e.RequestObject)
		}
	}
}

// deviceWrites reads what the scheduler wrote so far that carries device
// annotations or touches a node.
func (w *world) deviceWrites(t *testing.T) []sandbox.AuditEvent {
	t.Helper()
	events, err := w.cluster.AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	var mine, found []sandbox.AuditEvent
	for _, e := range events {
		changes := slices.Contains([]string{"create", "update", "patch", "delete"}, e.Verb)
		if changes && e.User.Username == sandbox.User(sandbox.Scheduler) && e.ResponseStatus.Code < 300 {
			mine = append(mine, e)
		}
	}
	if len(mine) == 0 {
		t.Fatalf("the audit log has no write of the scheduler among %d requests", len(events))
	}
	for _, e := range mine {
		body := string(e.RequestObject)
		if strings.Contains(body, "volcano.sh/vgpu-ids-new") || strings.Contains(body, "volcano.sh/vgpu-placement") ||
			strings.Contains(body, "volcano.sh/devices-to-allocate") || e.ObjectRef.Resource == "nodes" {
			found = append(found, e)
		}
	}
	return found
}

// about keeps the events about one pod.
func about(events []sandbox.AuditEvent, namespace, name string) []sandbox.AuditEvent {
	var kept []sandbox.AuditEvent
	for _, e := range events {
		if e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == namespace && e.ObjectRef.Name == name {
			kept = append(kept, e)
		}
	}
	return kept
}

// group makes a PodGroup that starts only with all its members.
func (w *world) group(t *testing.T, namespace, name string, members int) {
	t.Helper()
	client, err := dynamic.NewForConfig(w.cluster.RestConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(workload.PodGroups()).Namespace(namespace).Create(t.Context(), workload.Group(name, members), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
