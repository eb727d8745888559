// SPDX-License-Identifier: Apache-2.0

package otherplugin

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// decided is a pod as a scheduler binds it: two containers, the second of which does not ask.
func decided(name, at, devices string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Annotations: map[string]string{
			podNode: "n", podTime: at, podToAllocate: devices, podPhase: "allocating", "volcano.sh/vgpu-ids-new": devices}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}, {Name: "plain"}}},
	}
}

func plugin(t *testing.T, pods ...*corev1.Pod) *VGPU {
	t.Helper()
	client := fake.NewClientset()
	for _, p := range pods {
		if _, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return &VGPU{cfg: VGPUConfig{Client: client, Node: "n", Split: 2, Factor: 10, HookDir: t.TempDir(), Runtime: Runtime{Libraries: "/libs", Dev: "/dev"},
		Devices: []Device{{UUID: "GPU-a", Model: "A100", MemoryMiB: 40960}, {UUID: "GPU-b", Model: "A100", MemoryMiB: 40960, Index: 1}}}}
}

func TestDevicesAreRegisteredAsTheSchedulersReadThem(t *testing.T) {
	const want = "GPU-a,2,4096,NVIDIA-A100,true,hami-core:GPU-b,2,4096,NVIDIA-A100,true,hami-core:"
	if got := plugin(t).register(); got != want {
		t.Errorf("got %s", got)
	}
	if got := plugin(t).units("-memory-", func(d Device) int64 { return d.MemoryMiB / 10 }); len(got) != 8192 || got[4096].ID != "GPU-b-memory-0" {
		t.Errorf("%d kubelet devices", len(got))
	}
}

func TestTheOldestPodOfTheNodeWithAsManyDevicesGetsTheAllocation(t *testing.T) {
	elsewhere := decided("elsewhere", "1", "GPU-a,NVIDIA,1,0:")
	elsewhere.Annotations[podNode] = "other"
	v := plugin(t, decided("late", "20", "GPU-a,NVIDIA,100,30:"), decided("early", "3", "GPU-b,NVIDIA,200,0:"),
		decided("two", "1", "GPU-a,NVIDIA,1,0:GPU-b,NVIDIA,1,0:"), elsewhere, decided("done", allocated, "GPU-a,NVIDIA,1,0:"))
	got, err := v.allocate(t.Context(), []string{"GPU-a-0"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Envs["CUDA_DEVICE_MEMORY_LIMIT_0"] != "2000m" || got.Envs["NVIDIA_VISIBLE_DEVICES"] != "GPU-b" || got.Devices[1].HostPath != "/dev/nvidia1" {
		t.Errorf("the container gets %v and %v", got.Envs, got.Devices)
	}
	pod, err := v.cfg.Client.CoreV1().Pods("ns").Get(t.Context(), "early", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{podNode: "n", podTime: allocated, podToAllocate: "", podPhase: "success", "volcano.sh/vgpu-ids-new": "GPU-b,NVIDIA,200,0:"}
	if !maps.Equal(pod.Annotations, want) {
		t.Errorf("the pod says %v", pod.Annotations)
	}
}

func TestAPodOfSeveralContainersThatAskIsNotFound(t *testing.T) {
	v := plugin(t, decided("two", "1", "GPU-a,NVIDIA,1,0:;GPU-b,NVIDIA,1,0:"))
	if _, err := v.allocate(t.Context(), []string{"GPU-a-0"}); err == nil || !strings.Contains(err.Error(), "cannot get valid pod") {
		t.Errorf("got %v", err)
	}
}

func TestADeviceOfNobodyIsRefused(t *testing.T) {
	v := plugin(t, decided("stray", "1", "GPU-c,NVIDIA,1,0:"))
	if _, err := v.allocate(t.Context(), []string{"GPU-a-0"}); err == nil || !strings.Contains(err.Error(), "not about a device of node n") {
		t.Errorf("got %v", err)
	}
}
