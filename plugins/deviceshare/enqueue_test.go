// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"
)

// Volcano keeps a pod that asks for more than the whole cluster has out of its
// queue, so no predicate runs and nobody says why.
func TestAPodTooLargeForEveryDeviceIsToldOnce(t *testing.T) {
	cases := map[string]struct {
		memory int64
		told   bool
	}{
		"as much as the largest device": {10000, false},
		"more than any device":          {10001, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			node := nodeOf(t, devices("n1", 8, 10000))
			p := bare(t, infoOf(node, nil))
			pod := podOf("big", "g", asks{number: 1, memory: c.memory})
			job := api.NewJobInfo("g", api.NewTaskInfo(pod))
			p.reportTooLarge(job)
			p.reportTooLarge(job)
			got := p.store.report.(*reportRecorder).on(pod)
			if told := len(got) == 1; told != c.told || len(got) > 1 {
				t.Fatalf("told %q, want told: %v, and once", got, c.told)
			}
			if c.told && !strings.Contains(got[0], "c0") {
				t.Errorf("told %q, want the amount", got[0])
			}
		})
	}
}

// A pod changes with each condition that anybody writes: it is not told the same again.
func TestAPodTooLargeIsToldOnceHoweverOftenItChanges(t *testing.T) {
	g := heldGroup("g", 1, 1)
	pod := podOf("big", "g", asks{number: 1, memory: 20000})
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), g, pod)
	for i := range 5 {
		w.explained()
		changed := pod.DeepCopy()
		changed.Labels = map[string]string{"round": fmt.Sprint(i)}
		if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), changed, "ns"); err != nil {
			t.Fatal(err)
		}
		w.eventually("the pod has changed", func() bool { return w.taskIn("big").Pod.Labels["round"] == fmt.Sprint(i) })
	}
	if told := w.report.on(pod); len(told) != 1 {
		t.Errorf("told %q, want it once", told)
	}
	w.publish(nodeOf(t, devices("n1", 2, 15000)))
	w.explained()
	if told := w.report.on(pod); len(told) != 2 {
		t.Errorf("told %q, want it again with another amount", told)
	}
}

// on returns what was reported on a pod.
func (r *reportRecorder) on(pod *corev1.Pod) []string {
	var texts []string
	for _, x := range r.all() {
		if strings.Contains(x, pod.Name) {
			texts = append(texts, x)
		}
	}
	return texts
}
