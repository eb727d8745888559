// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/mix"
)

// withCPU has the pod ask for CPUs.
func withCPU(pod *corev1.Pod, cpus int64) *corev1.Pod {
	r := &pod.Spec.Containers[0].Resources
	r.Requests[corev1.ResourceCPU], r.Limits[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI), *resource.NewQuantity(cpus, resource.DecimalSI)
	return pod
}

// lesson is two nodes with devices, one without, and pods from which to learn that devices need
// 8 CPUs.
func lesson(t *testing.T) []runtime.Object {
	t.Helper()
	bare := nodeOf(t, devices("n3", 0, 10000))
	bare.Annotations = nil
	out := []runtime.Object{nodeOf(t, devices("n1", 8, 10000)), nodeOf(t, devices("n2", 8, 10000)), bare, groupOf("g", 1)}
	for i := range 60 {
		pod := withCPU(podOf(fmt.Sprintf("done-%d", i), "g", asks{number: 1, cores: 100}), 8)
		pod.Status.Phase = corev1.PodRunning
		out = append(out, boundTo(pod, "n4"))
	}
	n4 := nodeOf(t, devices("n4", 0, 10000))
	n4.Annotations, n4.Spec.Unschedulable = nil, true
	return append([]runtime.Object{n4}, out...)
}

// scores returns the score of each node for a pod of the session.
func (w *world) scores(pod string) map[string]float64 {
	w.t.Helper()
	ssn := w.open()
	defer framework.CloseSession(ssn)
	task := w.task(ssn, pod)
	_ = ssn.PrePredicateFn(task)
	out := map[string]float64{}
	for _, name := range []string{"n1", "n2", "n3"} {
		score, err := w.plugin.nodeOrder(task, ssn.Nodes[name])
		if err != nil {
			w.t.Fatal(err)
		}
		out[name] = score
	}
	return out
}

func TestAPodWithoutDevicesStaysAwayFromTheCPUBesideFreeDevices(t *testing.T) {
	for policy, away := range map[string]bool{"fragmentation": true, "binpack": false, "spread": false} {
		w := newWorld(t, append(lesson(t), withCPU(podOf("cpu", "g", asks{}), 32))...)
		w.args[argPolicy] = policy
		got := w.scores("cpu")
		if lost := got["n3"] > got["n1"]; lost != away {
			t.Errorf("%s: scores %v", policy, got)
		}
		if policy != "fragmentation" && got["n1"] != 0 {
			t.Errorf("%s scores a pod without devices: %v", policy, got)
		}
	}
}

// What was learned is learned again from the pods that are there, and a pod that is seen in every
// session counts once.
func TestWhatWasLearnedIsKeptOverARestart(t *testing.T) {
	w := newWorld(t, append(lesson(t), withCPU(podOf("cpu", "g", asks{}), 32))...)
	before := w.scores("cpu")
	w.scores("cpu")
	if n := w.store.mix.Len(); n != 61 {
		t.Errorf("%d pods are remembered, want 61", n)
	}
	w.restart()
	if after := w.scores("cpu"); fmt.Sprint(after) != fmt.Sprint(before) || w.store.mix.Model() == nil {
		t.Errorf("scores %v before a restart and %v after it", before, after)
	}
}

func TestWeightsAreRenewedAfterPlacements(t *testing.T) {
	w := newWorld(t, append(lesson(t), withCPU(podOf("p", "g", asks{number: 1, cores: 100}), 8))...)
	w.scores("p")
	model := w.store.mix.Model()
	w.scores("p")
	if w.store.mix.Model() != model {
		t.Error("the weights were renewed although nothing was placed")
	}
	ssn := w.open()
	defer framework.CloseSession(ssn)
	for range mix.PlacementsPerRenewal {
		w.plugin.onAllocate(&framework.Event{Task: api.NewTaskInfo(podOf("other", "g", asks{}))})
	}
	if _ = ssn.PrePredicateFn(w.task(ssn, "p")); w.store.mix.Model() == model || w.store.mix.IsDue() {
		t.Error("the weights are as before")
	}
}

// A node where the devices do not fit comes after every node where they do.
func TestANodeThatThePodDoesNotFitIsNeverPreferred(t *testing.T) {
	full := runningOn(t, podOf("full", "g", asks{number: 1, memory: 9000}), "n1", share("GPU-n1-0", 9000))
	objects := append(lesson(t), full, withCPU(podOf("p", "g", asks{number: 8, memory: 5000}), 8))
	w := newWorld(t, objects...)
	if got := w.scores("p"); got["n1"] >= got["n2"] {
		t.Errorf("scores %v", got)
	}
}
