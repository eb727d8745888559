// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"deviceshare/sharing"
)

func TestSharedMemoryIsThePodsVolumeElseItsMemory(t *testing.T) {
	limit := func(memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}}
	}
	always, size := corev1.ContainerRestartPolicyAlways, resource.MustParse("3Gi")
	main := corev1.Container{Name: "main", Resources: limit("8Gi")}
	at := func(path string) corev1.Container {
		c := main
		c.VolumeMounts = []corev1.VolumeMount{{Name: "other", MountPath: "/data"}, {Name: "shm", MountPath: path}}
		return c
	}
	without := func(c corev1.Container) corev1.Container {
		c.Resources = corev1.ResourceRequirements{}
		return c
	}
	volume := func(v corev1.EmptyDirVolumeSource) []corev1.Volume {
		return []corev1.Volume{{Name: "other"}, {Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &v}}}
	}
	sized := volume(corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size})
	pod := limit("2Gi")
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want sharing.Bytes
	}{
		"a pod that says nothing":                 {corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}, 0},
		"its memory":                              {corev1.PodSpec{Containers: []corev1.Container{main}}, 8 * sharing.GiB},
		"the memory of all its containers":        {corev1.PodSpec{Containers: []corev1.Container{main, {Name: "b", Resources: limit("1Gi")}}}, 9 * sharing.GiB},
		"no memory, since one has no limit":       {corev1.PodSpec{Containers: []corev1.Container{main, {Name: "b"}}}, 0},
		"a sidecar's, too":                        {corev1.PodSpec{InitContainers: []corev1.Container{{Name: "s", RestartPolicy: &always, Resources: limit("1Gi")}}, Containers: []corev1.Container{main}}, 9 * sharing.GiB},
		"not that of a container that ends first": {corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i"}}, Containers: []corev1.Container{main}}, 8 * sharing.GiB},
		"the memory of the pod as such":           {corev1.PodSpec{Resources: &pod, Containers: []corev1.Container{{Name: "main"}}}, 2 * sharing.GiB},
		"a volume of a size":                      {corev1.PodSpec{Volumes: sized, Containers: []corev1.Container{without(at("/dev/shm"))}}, 3 * sharing.GiB},
		"a volume, written otherwise":             {corev1.PodSpec{Volumes: sized, Containers: []corev1.Container{without(at("/dev//shm/"))}}, 3 * sharing.GiB},
		"a volume that is less than its memory":   {corev1.PodSpec{Volumes: sized, Containers: []corev1.Container{at("/dev/shm")}}, 3 * sharing.GiB},
		"a volume that is more than its memory":   {corev1.PodSpec{Resources: &pod, Volumes: sized, Containers: []corev1.Container{at("/dev/shm")}}, 2 * sharing.GiB},
		"a volume without a size":                 {corev1.PodSpec{Volumes: volume(corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}), Containers: []corev1.Container{at("/dev/shm")}}, 8 * sharing.GiB},
		"a volume on the disk":                    {corev1.PodSpec{Volumes: volume(corev1.EmptyDirVolumeSource{SizeLimit: &size}), Containers: []corev1.Container{without(at("/dev/shm"))}}, 0},
		"a volume elsewhere":                      {corev1.PodSpec{Volumes: sized, Containers: []corev1.Container{without(at("/dev/shm/x"))}}, 0},
		"a volume of another container":           {corev1.PodSpec{Volumes: sized, Containers: []corev1.Container{{Name: "main"}, {Name: "b", VolumeMounts: at("/dev/shm").VolumeMounts}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sharedMemory(&corev1.Pod{Spec: tc.spec}, "main"); got != tc.want {
				t.Errorf("it is %d MiB, want %d", got/sharing.MiB, tc.want/sharing.MiB)
			}
		})
	}
}
