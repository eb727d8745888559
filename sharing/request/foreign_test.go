// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"slices"
	"testing"

	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// What people write of devices and nobody reads, with what the answer says to write.
func TestAWishThatIsNotReadIsAMistakeThatSaysWhatToWrite(t *testing.T) {
	const all = "want one of volcano.sh/vgpu-mode, nvidia.com/use-gputype, nvidia.com/nouse-gputype, volcano.sh/vgpu-use-gpuuuid, volcano.sh/vgpu-nouse-gpuuuid, " +
		"volcano.sh/vgpu-podgroup-policy, volcano.sh/vgpu-neighbours, volcano.sh/vgpu-not-beside, volcano.sh/vgpu-policy, volcano.sh/vgpu-split, volcano.sh/vgpu-numa, volcano.sh/vgpu-virtual, volcano.sh/vgpu-may-move, volcano.sh/vgpu-restart-cost"
	for key, want := range map[string]string{
		"volcano.sh/vgpu-memory":         "is not read here, it is a resource: write volcano.sh/vgpu-memory below resources.limits of a container",
		"volcano.sh/vgpu-number":         "is not read here, it is a resource: write volcano.sh/vgpu-number below resources.limits of a container",
		"volcano.sh/gpu-memory":          "is not read here, it is a resource: write volcano.sh/vgpu-memory below resources.limits of a container",
		"nvidia.com/gpucores":            "is not read here, it is a resource: write volcano.sh/vgpu-cores below resources.limits of a container",
		"volcano.sh/vgpu-modes":          "is not known: do you mean volcano.sh/vgpu-mode?",
		"volcano.sh/vGPU-mode":           "is not known: do you mean volcano.sh/vgpu-mode?",
		"volcano.sh/vgpu_mode":           "is not known: do you mean volcano.sh/vgpu-mode?",
		"volcano.sh/vgpu-use-gpuid":      "is not known: do you mean volcano.sh/vgpu-use-gpuuuid?",
		"volcano.sh/vgpu-model":          "is not known: do you mean volcano.sh/vgpu-mode?",
		"volcano.sh/vgpu-withdraw":       "is not known: " + all,
		"volcano.sh/vgpu":                "is not known: " + all,
		"volcano.sh/use-gputype":         "is not known: do you mean nvidia.com/use-gputype?",
		"nvidia.com/use-gputypes":        "is not known: do you mean nvidia.com/use-gputype?",
		"nvidia.com/nouse-gpu-type":      "is not known: do you mean nvidia.com/nouse-gputype?",
		"nvidia.com/use-gpuuuid":         "is a name of HAMi, which is not read here: write the annotation volcano.sh/vgpu-use-gpuuuid",
		"nvidia.com/nouse-gpuuuid":       "is a name of HAMi, which is not read here: write the annotation volcano.sh/vgpu-nouse-gpuuuid",
		"nvidia.com/vgpu-mode":           "is a name of HAMi, which is not read here: write the annotation volcano.sh/vgpu-mode",
		"nvidia.com/numa-bind":           "is a name of HAMi, which is not read here: write the annotation volcano.sh/vgpu-numa",
		"hami.io/gpu-scheduler-policy":   "is a name of HAMi, which is not read here: write the annotation volcano.sh/vgpu-policy",
		"hami.io/device-scoring-weights": "is a name of HAMi, and there is nothing like it here: remove it",
	} {
		p := pod(amounts{number: 1})
		p.Annotations = map[string]string{key: "mig"}
		if got := rules(podspec.DefaultNames(), 1).Foreign(p); len(got) != 1 || got[0].String() != "metadata.annotations["+key+"]: "+want {
			t.Errorf("annotation %s: %q, want %q", key, got, want)
		}
		p.Annotations, p.Labels = nil, map[string]string{key: "mig"}
		if got := rules(podspec.DefaultNames(), 1).Foreign(p); len(got) != 1 || got[0].String() != "metadata.labels["+key+"]: "+want {
			t.Errorf("label %s: %q, want %q", key, got, want)
		}
	}
	for _, key := range wire.UserKeys() {
		p := pod(amounts{number: 1})
		if p.Labels = map[string]string{key: "mig"}; len(rules(podspec.DefaultNames(), 1).Foreign(p)) != 1 {
			t.Errorf("the label %s is nobody's mistake", key)
		}
	}
}

func TestAResourceThatIsNotServedIsAMistakeThatSaysWhatToWrite(t *testing.T) {
	renamed := podspec.Names{Number: "nvidia.com/gpu", Memory: "nvidia.com/gpumem", Cores: "nvidia.com/gpucores"}
	for name, c := range map[string]struct {
		names podspec.Names
		want  string
	}{
		"volcano.sh/vgpu-mem":               {podspec.DefaultNames(), "is no resource: do you mean volcano.sh/vgpu-memory?"},
		"volcano.sh/vgpu-core":              {podspec.DefaultNames(), "is no resource: do you mean volcano.sh/vgpu-cores?"},
		"volcano.sh/vGPU-number":            {podspec.DefaultNames(), "is no resource: do you mean volcano.sh/vgpu-number?"},
		"volcano.sh/vgpu-memory.a100":       {podspec.DefaultNames(), "is no resource: want one of volcano.sh/vgpu-number, volcano.sh/vgpu-memory, volcano.sh/vgpu-memory-percentage, volcano.sh/vgpu-cores"},
		"volcano.sh/gpu-memory":             {podspec.DefaultNames(), "is a name of Volcano's older GPU sharing, which is not served here: write volcano.sh/vgpu-memory"},
		"volcano.sh/gpu-number":             {podspec.DefaultNames(), "is a name of Volcano's older GPU sharing, which is not served here: write volcano.sh/vgpu-number"},
		"nvidia.com/gpumem":                 {podspec.DefaultNames(), "is a name of HAMi, which is not served here: write volcano.sh/vgpu-memory"},
		"nvidia.com/gpumem-percentage":      {podspec.DefaultNames(), "is a name of HAMi, which is not served here: write volcano.sh/vgpu-memory-percentage"},
		"nvidia.com/gpucores":               {podspec.DefaultNames(), "is a name of HAMi, which is not served here: write volcano.sh/vgpu-cores"},
		"nvidia.com/priority":               {podspec.DefaultNames(), "is a name of HAMi, and there is nothing like it here: remove it"},
		"volcano.sh/vgpu-number":            {renamed, "is named nvidia.com/gpu in this cluster: write that"},
		"volcano.sh/vgpu-memory-percentage": {renamed, "is not offered in this cluster: remove it"},
	} {
		got := rules(c.names, 1).Foreign(pod(amounts{name: 5, "example.com/hca": 1}))
		if want := "spec.containers[0] (main) resources.limits[" + name + "]: " + c.want; len(got) != 1 || got[0].String() != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if got := rules(c.names, 1).Foreign(pod(amounts{name: 0})); len(got) > 0 {
			t.Errorf("%s: 0 asks for nothing, but: %q", name, got)
		}
	}
	if got := rules(renamed, 1).Foreign(pod(amounts{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000})); len(got) > 0 {
		t.Errorf("HAMi's names are those of the cluster, but: %q", got)
	}
}

func TestWhatIsReadOrOfOthersIsNoMistake(t *testing.T) {
	p := pod(amounts{number: 1, memory: 1, "nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1, "example.com/vgpu-mem": 1, "volcano.sh/vgpucount": 0})
	p.Annotations, p.Labels = map[string]string{}, map[string]string{"app": "a", "volcano.sh/job-name": "j", "nvidia.com/gpu.product": "x", wire.PodNode: "n"}
	for _, key := range slices.Concat(wire.UserKeys(), wire.WrittenKeys(), []string{"volcano.sh/job-name", "volcano.sh/queue-name", "scheduling.k8s.io/group-name",
		"nvidia.com/gpu.deploy.client", "hami.io/vgpu-node", "volcano.sh/gpu-index", "example.com/vgpu-mode", "vgpu-mode", ""}) {
		p.Annotations[key] = "x"
	}
	if got := rules(podspec.DefaultNames(), 1).Foreign(p); len(got) > 0 {
		t.Errorf("mistakes: %q", got)
	}
}
