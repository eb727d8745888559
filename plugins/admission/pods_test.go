// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"testing"

	jsonpatch "gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/config"
)

const (
	number     = "volcano.sh/vgpu-number"
	memory     = "volcano.sh/vgpu-memory"
	cores      = "volcano.sh/vgpu-cores"
	percentage = "volcano.sh/vgpu-memory-percentage"
)

func defaults() Settings { return NewSettings(config.DefaultDevice(), []string{"volcano"}) }

type amounts map[corev1.ResourceName]string

func list(a amounts) corev1.ResourceList {
	if a == nil {
		return nil
	}
	out := corev1.ResourceList{}
	for name, text := range a {
		out[name] = resource.MustParse(text)
	}
	return out
}

// container has limits, and the same requests, as the API server defaults them.
func container(name string, limits amounts) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: list(limits), Requests: list(limits)}}
}

func podOf(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
		Spec:       corev1.PodSpec{SchedulerName: "default-scheduler", Containers: containers},
	}
}

func with(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	change(pod)
	return pod
}

func annotated(pod *corev1.Pod, keysAndValues ...string) *corev1.Pod {
	pod.Annotations = map[string]string{}
	for i := 0; i < len(keysAndValues); i += 2 {
		pod.Annotations[keysAndValues[i]] = keysAndValues[i+1]
	}
	return pod
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// apply does with the patch what the API server does.
func apply(t testing.TB, pod *corev1.Pod, patch []jsonpatch.Operation) *corev1.Pod {
	t.Helper()
	if len(patch) == 0 {
		return pod.DeepCopy()
	}
	decoded, err := evanphx.DecodePatch(mustJSON(t, patch))
	if err != nil {
		t.Fatalf("the patch cannot be read: %v", err)
	}
	raw, err := decoded.Apply(mustJSON(t, pod))
	if err != nil {
		t.Fatalf("the patch %s does not apply: %v", mustJSON(t, patch), err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatalf("the patched pod cannot be read: %v", err)
	}
	return out
}
