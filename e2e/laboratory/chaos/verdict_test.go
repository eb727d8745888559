// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestHowPodsEnd(t *testing.T) {
	exit := func(code int32) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: code}}}}
	}
	// So the kubelet writes of a container that it does not find.
	lostSight := func(id string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "b", ContainerID: id, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", ExitCode: 137}}}
	}
	noStart := func(why string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: "failed to create containerd task: " + why}}}}
	}
	on := func(device string) map[string]string {
		return map[string]string{placementKey: `{"uuid":"` + device + `"}`}
	}
	for name, c := range map[string]struct {
		pod         corev1.Pod
		kind, wrong string
	}{
		"one that did its work": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, "pods succeeded", ""},
		"one that the kubelet refused before it began": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError"}},
			"pods refused by the kubelet: UnexpectedAdmissionError", ""},
		"one that had run cannot have been refused": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError",
			ContainerStatuses: exit(0)}}, "pods failed", "UnexpectedAdmissionError"},
		"one whose init container had run, refused when the kubelet came back": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError",
			InitContainerStatuses: exit(137), ContainerStatuses: []corev1.ContainerStatus{{Name: "main"}}}}, "pods refused by the kubelet: UnexpectedAdmissionError", ""},
		"one of whose containers one had run": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError",
			ContainerStatuses: append(exit(0), lostSight(""))}}, "pods refused by the kubelet: UnexpectedAdmissionError", ""},
		"one whose only container was made and not started": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError",
			ContainerStatuses: []corev1.ContainerStatus{lostSight("containerd://x")}}}, "pods refused by the kubelet: UnexpectedAdmissionError", ""},
		"one that got more than its limit": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: exit(3)}},
			"pods failed", "it got what it should not get"},
		"one whose container was killed": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: exit(137)}},
			"pods failed", "exit code 137"},
		"one that containerd has forgotten": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Unknown", ExitCode: 255}}}}}},
			"pods failed that containerd was starting when it was killed", ""},
		"one whose start was given up for a kubelet that was killed": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: noStart("context canceled")}},
			"pods failed that the kubelet was starting when it was killed", ""},
		"one that cannot be started": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: noStart("no such file: libvgpu.so")}},
			"pods failed", "StartError failed to create containerd task: no such file: libvgpu.so, exit code 128"},
		"one on the device that is lost": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: on("GPU-lost")},
			Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: exit(3)}}, "pods failed on the lost device", ""},
		"one on another device": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: on("GPU-good")},
			Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: exit(3)}}, "pods failed", "exit code 3"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Judge(&c.pod, "GPU-lost")
			if got.Kind != c.kind || (got.Wrong == "") != (c.wrong == "") || !strings.Contains(got.Wrong, c.wrong) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A resident runs on in the container in which it was first seen.
func TestWhoHasMoved(t *testing.T) {
	at := func(uid, id string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: corev1.PodStatus{Phase: phase,
			ContainerStatuses: []corev1.ContainerStatus{{ContainerID: id}}}}
	}
	before := at("u", "c", corev1.PodRunning)
	for want, now := range map[string]*corev1.Pod{
		"":                      at("u", "c", corev1.PodRunning),
		"is another pod":        at("v", "c", corev1.PodRunning),
		"does not run any more": at("u", "c", corev1.PodFailed),
		"was started again":     at("u", "d", corev1.PodRunning),
		"has no container":      {ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
	} {
		if got := moved(before, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestHistoryKeepsTheLastEventsAndAllCounts(t *testing.T) {
	now := time.Unix(0, 0)
	h := NewHistory(func() time.Time { return now })
	for i := range 60 {
		now = time.Unix(int64(i), 0)
		h.Note("event %d", i)
		h.Count("events")
	}
	h.Count("others")
	lines := strings.Split(h.Last(), "\n")
	if len(lines) != shown || lines[0] != "    10.0 s  event 10" || lines[49] != "    59.0 s  event 59" {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
	if got := h.Counts(); got != "      60  events\n       1  others\n" || h.Of("events") != 60 {
		t.Errorf("got %q", got)
	}
}

func TestAClusterIsLeftAloneWhenNothingSucceeds(t *testing.T) {
	var b breath
	for _, step := range []struct {
		kills, progress int
		want            bool
	}{{0, 0, false}, {breathless - 1, 0, false}, {breathless, 0, true}, {breathless, 0, true}, {breathless, 1, false},
		{2*breathless - 1, 1, false}, {2 * breathless, 1, true}, {2 * breathless, 5, false}} {
		if got := b.isNeeded(step.kills, step.progress); got != step.want {
			t.Errorf("%+v: got %v", step, got)
		}
	}
}
