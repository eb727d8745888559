// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/wire"
)

// What is read by nobody is refused where our scheduler is to place the pod, and warned of where
// somebody else may read it.
func TestWishesThatNobodyReadsAreRefusedInPodsOfOurSchedulerOnly(t *testing.T) {
	share := amounts{number: "1"}
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		field   string // that the answer names
		refused bool   // of scheduler volcano
		warned  bool   // of another scheduler
	}{
		"memory as an annotation":                                {annotated(podOf(container("a", share)), memory, "4000"), "metadata.annotations[volcano.sh/vgpu-memory]", true, true},
		"an annotation of HAMi":                                  {annotated(podOf(container("a", share)), "nvidia.com/use-gpuuuid", "GPU-1"), "metadata.annotations[nvidia.com/use-gpuuuid]", true, true},
		"a mode in the words of HAMi":                            {annotated(podOf(container("a", share)), "nvidia.com/vgpu-mode", "mig"), "metadata.annotations[nvidia.com/vgpu-mode]", true, true},
		"a misspelled annotation":                                {annotated(podOf(container("a", share)), "volcano.sh/vgpu-modes", "mig"), "metadata.annotations[volcano.sh/vgpu-modes]", true, true},
		"an annotation as a label":                               {labelled(podOf(container("a", share)), wire.UserMode, "mig"), "metadata.labels[volcano.sh/vgpu-mode]", true, true},
		"a misspelled resource and others":                       {podOf(container("a", amounts{number: "1", "volcano.sh/vgpu-mem": "1"})), "resources.limits[volcano.sh/vgpu-mem]", true, true},
		"a misspelled resource alone":                            {podOf(container("a", amounts{"volcano.sh/vgpu-mem": "1"})), "resources.limits[volcano.sh/vgpu-mem]", true, true},
		"a resource of Volcano's older way":                      {podOf(container("a", amounts{"volcano.sh/gpu-memory": "1024"})), "resources.limits[volcano.sh/gpu-memory]", true, true},
		"resources of HAMi":                                      {podOf(container("a", amounts{"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"})), "resources.limits[nvidia.com/gpumem]", true, true},
		"NVIDIA's own resource":                                  {podOf(container("a", amounts{"nvidia.com/gpu": "1"})), "", false, false},
		"a share":                                                {podOf(container("a", share)), "", false, false},
		"memory as an annotation of a pod that asks for nothing": {annotated(podOf(container("a", nil)), memory, "4000"), "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			v := Review(ours(c.pod.DeepCopy()), defaults())
			if v.Refused() != c.refused || !strings.Contains(v.Message(), c.field) {
				t.Errorf("with our scheduler: %s %q", v.Message(), v.Warnings)
			}
			other := c.pod.DeepCopy()
			other.Spec.SchedulerName = "other"
			v = Review(other, defaults())
			if warned := strings.Contains(strings.Join(v.Warnings, "\n"), "metadata.") || strings.Contains(strings.Join(v.Warnings, "\n"), "resources.limits"); v.Refused() || warned != c.warned {
				t.Errorf("with another scheduler: %s %q", v.Message(), v.Warnings)
			}
		})
	}
}

func labelled(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod.Labels = map[string]string{key: value}
	return pod
}

// A LimitRange with a default for a share makes GPU containers of all others of its namespace. The
// notes are those that the API server writes.
func TestAShareThatComesFromALimitRangeIsWarnedOf(t *testing.T) {
	const set = "LimitRanger plugin set: "
	for name, c := range map[string]struct {
		limits amounts
		note   string
		want   string
	}{
		"memory from the range":                     {amounts{memory: "4000"}, set + "cpu, volcano.sh/vgpu-memory request for container a; volcano.sh/vgpu-memory limit for container a", "write volcano.sh/vgpu-memory: 0"},
		"number and memory from the range":          {amounts{number: "1", memory: "4000"}, set + "volcano.sh/vgpu-memory, volcano.sh/vgpu-number limit for container a", "write volcano.sh/vgpu-number: 0, volcano.sh/vgpu-memory: 0"},
		"the number is the pod's":                   {amounts{number: "1", memory: "4000"}, set + "volcano.sh/vgpu-memory limit for container a", ""},
		"the range sets another container's":        {amounts{memory: "4000"}, set + "volcano.sh/vgpu-memory limit for container aa", ""},
		"the range sets an init container's":        {amounts{memory: "4000"}, set + "volcano.sh/vgpu-memory limit for init container a", ""},
		"the range sets something else":             {amounts{memory: "4000"}, set + "cpu, memory limit for container a", ""},
		"the range sets what begins the same":       {amounts{memory: "4000"}, set + "volcano.sh/vgpu-memory-percentage limit for container a", ""},
		"no range":                                  {amounts{memory: "4000"}, "", ""},
		"a note that is none":                       {amounts{memory: "4000"}, "volcano.sh/vgpu-memory limit for container a", ""},
		"zero of the pod, so that the range is out": {amounts{memory: "0"}, set + "cpu limit for container a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := annotated(podOf(container("a", c.limits)), LimitRangeKey, c.note)
			got := strings.Join(limitRangeWarnings(pod, defaults()), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("warning %q, want %q", got, c.want)
			}
		})
	}
}

// The API server has applied the LimitRange when it calls for the pod to be completed, and only
// then can be told what the pod itself has said.
func TestTheMutationWarnsOfAShareThatComesFromALimitRange(t *testing.T) {
	pod := annotated(podOf(container("a", amounts{memory: "4000"})), LimitRangeKey, "LimitRanger plugin set: volcano.sh/vgpu-memory request for container a; volcano.sh/vgpu-memory limit for container a")
	if got := newTestHandlers(t, defaults()).mutatePod(t.Context(), creation(mustJSON(t, pod))).Warnings; len(got) != 1 || !strings.Contains(got[0], "LimitRange") {
		t.Errorf("warnings: %q", got)
	}
}
