// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func always() *corev1.ContainerRestartPolicy {
	p := corev1.ContainerRestartPolicyAlways
	return &p
}

func TestWhatIsAddedToAPod(t *testing.T) {
	const scheduler = `{"op":"add","path":"/spec/schedulerName","value":"volcano"}`
	first := func(at string) string {
		return `{"op":"add","path":"/spec/` + at + `/resources/limits/volcano.sh~1vgpu-number","value":"1"},` +
			`{"op":"add","path":"/spec/` + at + `/resources/requests/volcano.sh~1vgpu-number","value":"1"}`
	}
	volcano := func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" }
	tests := map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a pod that asks for nothing of ours is left alone": {
			podOf(container("a", amounts{"cpu": "1", "nvidia.com/gpu": "1"})), `null`},
		"a pod that asks for nothing of ours keeps no placement that it brought along": {
			annotated(podOf(container("a", amounts{"example.com/hca": "1"})), "volcano.sh/vgpu-placement", "{}", "mine", "stays"),
			`[{"op":"remove","path":"/metadata/annotations/volcano.sh~1vgpu-placement"}]`},
		"memory alone gets one device and the scheduler": {
			podOf(container("a", amounts{memory: "1000"})), `[` + first("containers/0") + `,` + scheduler + `]`},
		"cores alone get one device": {
			with(podOf(container("a", amounts{cores: "30"})), volcano), `[` + first("containers/0") + `]`},
		"a percentage alone gets one device": {
			with(podOf(container("a", amounts{percentage: "50"})), volcano), `[` + first("containers/0") + `]`},
		"a number alone gets the scheduler only": {
			podOf(container("a", amounts{number: "2"})), `[` + scheduler + `]`},
		"a complete pod is left alone": {
			with(podOf(container("a", amounts{number: "2", memory: "1000"})), volcano), `null`},
		"a number of zero stands, whatever is asked beside it": {
			with(podOf(container("a", amounts{number: "0", memory: "1000"})), volcano), `null`},
		"memory of zero asks for nothing": {
			podOf(container("a", amounts{memory: "0"})), `null`},
		"containers that do not ask get nothing": {
			with(podOf(container("a", nil), container("b", amounts{memory: "5"}), container("c", amounts{"cpu": "1"})), volcano),
			`[` + first("containers/1") + `]`},
		"init containers and sidecars are completed too": {
			with(podOf(container("a", amounts{number: "1"})), func(p *corev1.Pod) {
				volcano(p)
				side := container("s", amounts{cores: "10"})
				side.RestartPolicy = always()
				p.Spec.InitContainers = []corev1.Container{container("i", amounts{memory: "5"}), side}
			}), `[` + first("initContainers/0") + `,` + first("initContainers/1") + `]`},
		"limits without requests get both": {
			with(podOf(corev1.Container{Name: "a", Resources: corev1.ResourceRequirements{Limits: list(amounts{memory: "5"})}}), volcano),
			`[{"op":"add","path":"/spec/containers/0/resources/limits/volcano.sh~1vgpu-number","value":"1"},` +
				`{"op":"add","path":"/spec/containers/0/resources/requests","value":{"volcano.sh/vgpu-number":"1"}}]`},
		"requests without limits get both": {
			with(podOf(corev1.Container{Name: "a", Resources: corev1.ResourceRequirements{Requests: list(amounts{memory: "5"})}}), volcano),
			`[{"op":"add","path":"/spec/containers/0/resources/limits","value":{"volcano.sh/vgpu-number":"1"}},` +
				`{"op":"add","path":"/spec/containers/0/resources/requests/volcano.sh~1vgpu-number","value":"1"}]`},
		"no scheduler at all gets ours": {
			with(podOf(container("a", amounts{number: "1"})), func(p *corev1.Pod) { p.Spec.SchedulerName = "" }), `[` + scheduler + `]`},
		"a third scheduler stays, and the number is written": {
			with(podOf(container("a", amounts{memory: "5"})), func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }),
			`[` + first("containers/0") + `]`},
		"a mirror pod of the kubelet is left alone": {
			annotated(podOf(container("a", amounts{memory: "5"})), corev1.MirrorPodAnnotationKey, "x"), `null`},
		"a placement that was copied or forged is removed": {
			annotated(with(podOf(container("a", amounts{number: "1"})), volcano), "volcano.sh/vgpu-mode", "mig", "volcano.sh/vgpu-placement", "{}",
				"volcano.sh/vgpu-node", "n", "volcano.sh/vgpu-ids-new", "x", "volcano.sh/devices-to-allocate", "x", "volcano.sh/bind-phase", "success"),
			`[{"op":"remove","path":"/metadata/annotations/volcano.sh~1vgpu-placement"},{"op":"remove","path":"/metadata/annotations/volcano.sh~1vgpu-node"},` +
				`{"op":"remove","path":"/metadata/annotations/volcano.sh~1vgpu-ids-new"},{"op":"remove","path":"/metadata/annotations/volcano.sh~1devices-to-allocate"},` +
				`{"op":"remove","path":"/metadata/annotations/volcano.sh~1bind-phase"}]`},
		"a mistake is not repaired": {
			with(podOf(container("a", amounts{number: "-1", memory: "5"})), volcano), `null`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := tt.pod.DeepCopy()
			patch := Complete(tt.pod, defaults())
			if diff := cmp.Diff(tt.want, string(mustJSON(t, patch))); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if !equality.Semantic.DeepEqual(before, tt.pod) {
				t.Error("the pod was changed")
			}
			after := apply(t, tt.pod, patch)
			if again := Complete(after, defaults()); len(again) > 0 {
				t.Errorf("completing it twice adds %s", mustJSON(t, again))
			}
		})
	}
}

// NVIDIA's runtime would give a container the devices that it names itself, past its share.
func TestWhatAContainerSaysOfTheDevicesItSeesIsDropped(t *testing.T) {
	env := func(asks amounts, names ...string) corev1.Container {
		c := container("a", asks)
		for _, name := range names {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: "all"})
		}
		return c
	}
	from := env(amounts{number: "1"}, "NVIDIA_VISIBLE_DEVICES")
	from.Env[0].Value, from.Env[0].ValueFrom = "", &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
	for name, tt := range map[string]struct {
		container corev1.Container
		left      string
	}{
		"among others":                       {env(amounts{number: "1"}, "A", "NVIDIA_VISIBLE_DEVICES", "B"), "A B"},
		"each time that it says so":          {env(amounts{memory: "5"}, "NVIDIA_VISIBLE_DEVICES", "A", "NVIDIA_VISIBLE_DEVICES"), "A"},
		"wherever it has it from":            {from, ""},
		"not what it says of others":         {env(amounts{number: "1"}, "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES"), "NVIDIA_DRIVER_CAPABILITIES CUDA_VISIBLE_DEVICES"},
		"not if it asks for nothing of ours": {env(amounts{"cpu": "1"}, "NVIDIA_VISIBLE_DEVICES"), "NVIDIA_VISIBLE_DEVICES"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(container("first", amounts{number: "1"}), tt.container)
			pod.Spec.InitContainers = []corev1.Container{tt.container}
			after := apply(t, pod, Complete(pod, defaults()))
			for _, c := range []corev1.Container{after.Spec.Containers[1], after.Spec.InitContainers[0]} {
				var left []string
				for _, v := range c.Env {
					left = append(left, v.Name)
				}
				if got := strings.Join(left, " "); got != tt.left {
					t.Errorf("%q is left, want %q", got, tt.left)
				}
			}
		})
	}
}

func TestCompletionUsesTheConfiguredNames(t *testing.T) {
	s := defaults()
	s.Names.Number, s.Names.Memory = "example.com/a~b", "example.com/mem"
	s.Schedulers = []string{"mine", "volcano"}
	pod := podOf(container("a", amounts{"example.com/mem": "5"}), container("b", amounts{memory: "5"}))
	after := apply(t, pod, Complete(pod, s))
	if got := after.Spec.Containers[0].Resources.Limits["example.com/a~b"]; got.Value() != 1 {
		t.Errorf("limit %v, want 1", got)
	}
	if len(after.Spec.Containers[1].Resources.Limits) != 1 {
		t.Error("a container that uses the default names was completed though they are renamed")
	}
	if after.Spec.SchedulerName != "mine" {
		t.Errorf("scheduler %q, want the first configured", after.Spec.SchedulerName)
	}
	after.Spec.SchedulerName = "volcano"
	if patch := Complete(after, s); patch != nil {
		t.Errorf("a pod of the second configured scheduler is patched: %s", mustJSON(t, patch))
	}
}

func TestCompletionWritesTheConfiguredNumber(t *testing.T) {
	s := defaults()
	s.Count = 2
	pod := podOf(container("a", amounts{memory: "5"}))
	after := apply(t, pod, Complete(pod, s))
	if got := after.Spec.Containers[0].Resources.Limits[number]; got.Value() != 2 {
		t.Errorf("limit %v, want 2", got)
	}
}

func TestWhatIsCompletedIsAccepted(t *testing.T) {
	for name, asks := range map[string]amounts{
		"memory":            {memory: "1000"},
		"cores":             {cores: "30"},
		"percentage":        {percentage: "25"},
		"memory and cores":  {memory: "1000", cores: "30"},
		"number":            {number: "2"},
		"the whole compute": {number: "1", cores: "100"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(container("a", asks))
			if v := Review(apply(t, pod, Complete(pod, defaults())), defaults()); v.Refused() || len(v.Warnings) > 0 {
				t.Errorf("verdict %+v", v)
			}
		})
	}
}
