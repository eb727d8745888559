// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/laboratory/frameworks"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// stepByStep runs a Workflow: its steps are no gang. Of three beside each other two run where two
// fit, and the third one when there is room. Pods that have ended stay and hold nothing.
func (w *world) stepByStep(t *testing.T, room *room) {
	opened := false
	t.Cleanup(func() { // after the pods are gone
		if opened {
			room.close(t)
		}
	})
	ctx, u := w.user(t, "framework-workflow", 3*time.Minute)
	workflow := w.make(ctx, t, u, manifest(t, "workflow")[0], nil)[0]
	steps, err := frameworks.Steps(workflow)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 2 || len(steps[0]) != 1 || len(steps[1]) != 3 {
		t.Fatalf("the workflow has steps %v, want one pod and then three", steps)
	}
	w.make(ctx, t, u, steps[0][0], nil)
	holds(ctx, t, u, []string{steps[0][0].GetName()}, 1)
	names := make([]string, len(steps[1]))
	for i, p := range steps[1] {
		names[i] = p.GetName()
		goOn(t, p) // or one would end before the next one asks
		w.make(ctx, t, u, p, nil)
	}
	said, err := u.WaitAnyEvent(ctx, names, "devices fit")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("of three steps with room for two one waits: %s", said)
	got := 0
	for got < 2 { // who waits is told in the session that places the others, before it is over
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			break
		}
		got = len(placed(ctx, t, u, names))
	}
	if got != 2 {
		t.Errorf("of three steps with room for two %d have a place, want 2", got)
	}
	opened = true
	room.open(ctx, t)
	for _, name := range names {
		worked(ctx, t, u, name)
	}
	if got := len(placed(ctx, t, u, names)); got != 3 {
		t.Errorf("of three steps with room for all %d have a place", got)
	}
}

// goOn lets the containers of a pod run on after their steps.
func goOn(t *testing.T, p *unstructured.Unstructured) {
	t.Helper()
	if err := unstructured.SetNestedField(p.Object, string(corev1.RestartPolicyAlways), "spec", "restartPolicy"); err != nil {
		t.Fatal(err)
	}
}

// placed returns the pods that have a place.
func placed(ctx context.Context, t *testing.T, u *user.User, names []string) []string {
	t.Helper()
	var out []string
	for _, name := range names {
		p, err := u.Get(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Annotations[wire.PodPlacement] != "" {
			out = append(out, name)
		}
	}
	return out
}

// gatedPodsHoldNothing makes a gang of three pods that are gated, as Kueue gates pods. While they
// are, another pod gets every device of the node whole. Of the gang none starts while one is gated.
func (w *world) gatedPodsHoldNothing(t *testing.T) {
	ctx, u := w.user(t, "gated", 3*time.Minute)
	w.group(t, u.Namespace(), "gated", 3)
	names := []string{"gated-0", "gated-1", "gated-2"}
	for _, name := range names {
		p := pod(name).App("main", workload.Ask{Number: 2, Memory: 1000}, append([]string{"device", "1"}, heldToShare()...)...).
			Annotate(workload.GroupKey, "gated").Label("kueue.x-k8s.io/managed", "true").Label("kueue.x-k8s.io/queue-name", "team").
			Edit(func(p *corev1.Pod) {
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
			}).Build()
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	all := pod("all").App("main", workload.Ask{Number: gpus, Cores: 100}, "alloc", "70000", "expect", "ok").Build()
	if err := u.Create(ctx, all); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, u, "all")
	for _, name := range names[:2] {
		w.ungate(ctx, t, u, name)
	}
	// Each pod that is placed after the two had their turn shows that they did not start.
	for i := range rounds(1, 3) {
		name := fmt.Sprintf("after-%d", i)
		if err := u.Create(ctx, pod(name).App("main", workload.Ask{Number: 1, Memory: 1000}, heldToShare()...).Build()); err != nil {
			t.Fatal(err)
		}
		succeeds(ctx, t, u, name)
	}
	if got := placed(ctx, t, u, names); len(got) != 0 {
		t.Errorf("of a gang with a gated pod these started: %q", got)
	}
	if _, err := u.WaitEvent(ctx, names[0], "once minAvailable is satisfied"); err != nil {
		t.Error(err)
	}
	w.ungate(ctx, t, u, names[2])
	for _, name := range names {
		succeeds(ctx, t, u, name)
	}
}

// ungate admits a pod, as Kueue does.
func (w *world) ungate(ctx context.Context, t *testing.T, u *user.User, name string) {
	t.Helper()
	patch := []byte(`[{"op":"remove","path":"/spec/schedulingGates"}]`)
	if _, err := w.cluster.Client().CoreV1().Pods(u.Namespace()).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatalf("ungate pod %s: %v", name, err)
	}
}

// kueueCountsWhatIsHeld makes the Job of kueue.yaml, which is suspended and holds nothing, and
// admits it as Kueue does: it fits into the quota. What Kueue counts is what its pods hold.
func (w *world) kueueCountsWhatIsHeld(t *testing.T) {
	ctx, u := w.user(t, "framework-kueue", 2*time.Minute)
	var job, queue *unstructured.Unstructured
	for _, o := range manifest(t, "kueue") {
		made := w.make(ctx, t, u, o, nil)[0]
		switch made.GetKind() {
		case "Job":
			job = made
		case "ClusterQueue":
			queue = made
		}
	}
	if pods, err := u.Pods(ctx); err != nil || len(pods) != 0 {
		t.Fatalf("a suspended Job has %d pods, %v", len(pods), err)
	}
	quota, err := frameworks.Quota(queue)
	if err != nil {
		t.Fatal(err)
	}
	counted, err := frameworks.Counted(job, kueueConfiguration(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, amount := range counted {
		if limit, covered := quota[name]; !covered || amount.Cmp(limit) > 0 {
			t.Errorf("Kueue never admits the Job: it counts %s of %s, and the queue has %s", amount.String(), name, limit.String())
		}
	}
	twoAreCountedTooLow(t, job, counted, quota)
	admit := []byte(`[{"op":"replace","path":"/spec/suspend","value":false}]`)
	if _, err := w.cluster.Client().BatchV1().Jobs(u.Namespace()).Patch(ctx, job.GetName(), types.JSONPatchType, admit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	number, memory := 0, int64(0)
	for _, name := range podNames(waitPods(ctx, t, u, 2)) {
		_, shares := worked(ctx, t, u, name)
		number += len(shares)
		for _, s := range shares {
			memory += int64(s.Memory / sharing.MiB)
		}
	}
	for name, held := range map[corev1.ResourceName]int64{workload.Number: int64(number), totalMemory: memory} {
		if got := counted[name]; got.Value() != held {
			t.Errorf("Kueue counts %s of %s, and the pods hold %d", got.String(), name, held)
		}
	}
}

// twoAreCountedTooLow expects that a second Job waits, and that without the transformation both
// would be admitted and hold more memory than the quota says.
func twoAreCountedTooLow(t *testing.T, job *unstructured.Unstructured, counted, quota corev1.ResourceList) {
	t.Helper()
	plain, err := frameworks.Counted(job, nil)
	if err != nil {
		t.Fatal(err)
	}
	limit, memory, wrong := quota[totalMemory], counted[totalMemory], plain[workload.Memory]
	if 2*memory.Value() <= limit.Value() {
		t.Errorf("two Jobs of %s MiB are admitted into %s MiB", memory.String(), limit.String())
	}
	if 2*wrong.Value() > limit.Value() {
		t.Errorf("without the transformation two Jobs are counted as twice %s MiB, more than %s MiB: then it is not needed", wrong.String(), limit.String())
	}
}

// totalMemory is what the transformation makes of memory and number.
const totalMemory corev1.ResourceName = "example.com/vgpu-memory-total"

// groupsThatExceedTheQueueSayWhy makes the group of a PyTorchJob that asks for more memory than all
// devices have together. Volcano does not let it into its queue, so that there are no pods that
// could say why: the group does.
func (w *world) groupsThatExceedTheQueueSayWhy(t *testing.T) {
	ctx, u := w.user(t, "framework-queue", 2*time.Minute)
	job := manifest(t, "pytorchjob")[0]
	if err := unstructured.SetNestedField(job.Object, int64(gpus*memoryMiB/share), "spec", "pytorchReplicaSpecs", "Worker", "replicas"); err != nil {
		t.Fatal(err)
	}
	made, err := frameworks.Make(job, nil)
	if err != nil {
		t.Fatal(err)
	}
	group := made[0]
	group.SetOwnerReferences(nil)
	w.make(ctx, t, u, group, nil)
	for {
		events, err := w.cluster.Client().CoreV1().Events(u.Namespace()).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=PodGroup"})
		if err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "insufficient volcano.sh/vgpu-memory") }) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the group says nothing of memory: %v", events)
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// kueueConfiguration is what docs/frameworks.md tells to write into Kueue's configuration.
func kueueConfiguration(t *testing.T) []byte {
	t.Helper()
	page, err := os.ReadFile("../../docs/frameworks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		if strings.Contains(string(block[1]), "kind: Configuration") {
			return block[1]
		}
	}
	t.Fatal("docs/frameworks.md has no configuration of Kueue")
	return nil
}
