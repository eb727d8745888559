// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// reason is one way of waiting: what is made, and what the pod must be told.
type reason struct {
	name string
	pods []*workload.Pod
	// group, where the pods are in one that is not made by Volcano, with the slots that it asks
	// for, the members that it needs and its queue.
	group string
	slots int64
	needs int
	queue string
	// node changes the node; back undoes it.
	node, back string
	words      []string
}

// testReasons has a pod wait in every way that there is. Within seconds its event and its condition
// say which, and nothing else does.
func testReasons(t *testing.T, w *world) {
	ctx, u := w.user(t, "reasons", 3*time.Minute)
	w.queues(ctx, t)
	for _, r := range waysToWait() {
		t.Run(r.name, func(t *testing.T) { w.isTold(ctx, t, u, r) })
	}
	t.Run("not_seen_by_the_webhook", func(t *testing.T) { w.unseenIsTold(ctx, t) })
	t.Run("configuration_unknown", func(t *testing.T) { w.unconfiguredIsTold(ctx, t, u) })
}

// waysToWait are those for which the cluster stays as it is, but for the node's marks.
func waysToWait() []reason {
	few := workload.Ask{Number: 1, Memory: 100}
	one := func(name string) *workload.Pod { return pod(name).App("main", few, "forever") }
	inMPS := func(name string) *workload.Pod { return one(name).Annotate("volcano.sh/vgpu-mode", "mps") }
	return []reason{
		{name: "devices", pods: []*workload.Pod{inMPS("wrong")},
			words: []string{fmt.Sprintf("0/%d devices fit", gpus), fmt.Sprintf("%d in a mode that the pod does not accept (WrongMode)", gpus)}},
		{name: "overcommit", pods: []*workload.Pod{one("crowd")}, group: "crowd", slots: 1000, needs: 1, queue: "default",
			words: []string{"held back before any node is looked at", "plugin overcommit", "asks for 1000 of " + string(workload.Number), "room now"}},
		{name: "queue_full", pods: []*workload.Pod{one("wide")}, group: "wide", slots: 2, needs: 1, queue: "reasons-narrow",
			words: []string{"queue reasons-narrow has no room for it", "asks for 2 of " + string(workload.Number), "capability of 1"}},
		{name: "queue_closed", pods: []*workload.Pod{one("late")}, group: "late", slots: 1, needs: 1, queue: "reasons-closed",
			words: []string{"queue reasons-closed is not open but closed"}},
		{name: "gang_incomplete", pods: []*workload.Pod{one("alone")}, group: "alone", slots: 1, needs: 3, queue: "default",
			words: []string{"the gang has 1 of the 3 pods it needs"}},
		{name: "gang_does_not_fit", pods: []*workload.Pod{one("fits"), inMPS("fits-not")}, group: "pair", slots: 2, needs: 2, queue: "default",
			words: []string{fmt.Sprintf("%d in a mode that the pod does not accept (WrongMode)", gpus)}},
		{name: "selector", pods: []*workload.Pod{one("elsewhere").Edit(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"nowhere": "here"} })},
			words: []string{"didn't match Pod's node affinity/selector"}},
		{name: "cordon", pods: []*workload.Pod{one("cordoned")},
			node: `{"spec":{"unschedulable":true}}`, back: `{"spec":{"unschedulable":null}}`, words: []string{"unschedulable"}},
		{name: "taint", pods: []*workload.Pod{one("tainted")},
			node: `{"spec":{"taints":[{"key":"example.com/kept","value":"off","effect":"NoSchedule"}]}}`, back: `{"spec":{"taints":null}}`,
			words: []string{"untolerated taint", "example.com/kept"}},
	}
}

// isTold makes what waits and wants that its last pod is told the reason.
func (w *world) isTold(ctx context.Context, t *testing.T, u *user.User, r reason) {
	if r.node != "" {
		w.patchNode(ctx, t, r.node)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
			defer cancel()
			w.patchNode(ctx, t, r.back)
		})
	}
	if r.group != "" {
		g := workload.Group(r.group, r.needs)
		g.Object["spec"].(map[string]any)["queue"] = r.queue
		g.Object["spec"].(map[string]any)["minResources"] = map[string]any{string(workload.Number): fmt.Sprint(r.slots)}
		if _, err := w.dynamic(t).Resource(workload.PodGroups()).Namespace("reasons").Create(ctx, g, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, p := range r.pods {
		if r.group != "" {
			p.Annotate(workload.GroupKey, r.group)
		}
		made := p.Build()
		if err := u.Create(ctx, made); err != nil {
			t.Fatal(err)
		}
		names = append(names, made.Name)
	}
	w.told(ctx, t, "reasons", names[len(names)-1], r.words...)
	if err := u.Delete(ctx, names...); err != nil {
		t.Error(err)
	}
}

// promptly is within how long a pod is told why it waits.
const promptly = 5 * time.Second

// told waits until the condition of a pod has the words, and an event of the same text is there. A
// machine that is busy with others may take longer than promised.
func (w *world) told(ctx context.Context, t *testing.T, namespace, name string, words ...string) {
	t.Helper()
	began, pods, events := time.Now(), w.cluster.Client().CoreV1().Pods(namespace), w.cluster.Client().CoreV1().Events(namespace)
	ctx, cancel := context.WithTimeout(ctx, slack*6*promptly)
	defer cancel()
	for {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		var condition string
		if err == nil {
			condition = unschedulable(p)
		}
		list, err := events.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.name", name).String()})
		same := err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == "FailedScheduling" && strings.HasSuffix(e.Message, condition)
		})
		if has := !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(condition, word) }); has && same {
			took := time.Since(began)
			t.Logf("told after %.1f s, promised within %v: %s", took.Seconds(), promptly, condition)
			return
		}
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("pod %s is told %q, want %q, with an event of it (%v)", name, condition, words, same)
		}
	}
}

// unschedulable is what a pod's condition says of why it has no node.
func unschedulable(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// unseenIsTold makes a pod where the webhook looks at none, with a mistake that it would refuse.
func (w *world) unseenIsTold(ctx context.Context, t *testing.T) {
	u, err := user.New(ctx, w.cluster.Client(), metav1.NamespaceSystem)
	if err != nil {
		t.Fatal(err)
	}
	p := pod("reasons-unseen").App("main", workload.Ask{Number: 1, Memory: 100}, "forever").Annotate("volcano.sh/vgpu-mode", "foo").Build()
	if err := u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	w.told(ctx, t, metav1.NamespaceSystem, p.Name, "its device request cannot be read", "volcano.sh/vgpu-mode", `"foo"`)
	if err := u.Delete(ctx, p.Name); err != nil {
		t.Error(err)
	}
}

// unconfiguredIsTold has the schedulers start with a configuration that nobody can read.
func (w *world) unconfiguredIsTold(ctx context.Context, t *testing.T, u *user.User) {
	if err := u.ConfigureDevices(ctx, "nvidia: {gpuMemoryFactor: many}\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.defaultSettings(t, u) })
	w.replaceSchedulers(ctx, t)
	p := pod("unread").App("main", workload.Ask{Number: 1, Memory: 100}, "forever").Build()
	if err := u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	w.told(ctx, t, "reasons", p.Name, "has not read the device configuration", "gpuMemoryFactor")
	w.defaultSettings(t, u)
	if _, err := u.WaitRunning(ctx, p.Name); err != nil {
		t.Errorf("the configuration can be read again, yet the pod does not run: %v", err)
	}
}

// replaceSchedulers deletes the schedulers and waits until they have ended: until then the one that
// leads goes on with the configuration it knows.
func (w *world) replaceSchedulers(ctx context.Context, t *testing.T) {
	t.Helper()
	old := map[types.UID]bool{}
	for _, p := range w.podsOf(ctx, t, sandbox.Scheduler) {
		old[p.UID] = true
		w.deletePod(ctx, t, &p)
	}
	isOld := func(p corev1.Pod) bool { return old[p.UID] }
	for slices.ContainsFunc(w.podsOf(ctx, t, sandbox.Scheduler), isOld) {
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("the schedulers that were deleted have not ended: %v", ctx.Err())
		}
	}
}

func (w *world) patchNode(ctx context.Context, t *testing.T, patch string) {
	t.Helper()
	if _, err := w.cluster.Client().CoreV1().Nodes().Patch(ctx, sandbox.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) dynamic(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(w.cluster.RestConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// queues makes one queue that may have a single slot, and one that is closed.
func (w *world) queues(ctx context.Context, t *testing.T) {
	t.Helper()
	queues := w.dynamic(t).Resource(workload.PodGroups().GroupVersion().WithResource("queues"))
	for name, spec := range map[string]map[string]any{
		"reasons-narrow": {"weight": int64(1), "capability": map[string]any{string(workload.Number): "1"}},
		"reasons-closed": {"weight": int64(1)},
	} {
		q := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": workload.PodGroups().GroupVersion().String(), "kind": "Queue", "metadata": map[string]any{"name": name}, "spec": spec,
		}}
		if _, err := queues.Create(ctx, q, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := queues.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		state := func() string {
			made, err := queues.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			is, _, _ := unstructured.NestedString(made.Object, "status", "state")
			return is
		}
		for state() != "Open" {
			if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
				t.Fatalf("queue %s is %q", name, state())
			}
		}
	}
	// As `vcctl queue operate --action close` ends.
	closed := []byte(`{"status":{"state":"Closed"}}`)
	if _, err := queues.Patch(ctx, "reasons-closed", types.MergePatchType, closed, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}
