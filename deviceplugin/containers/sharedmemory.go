// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
)

// sharedMemory is what a container may have in /dev/shm: the size of the memory that its pod has
// mounted there, else the memory of its pod; 0 where the pod says neither. It is the rule by which
// the kubelet sizes such volumes.
func sharedMemory(pod *corev1.Pod, container string) sharing.Bytes {
	memory := podMemory(pod)
	own := shmVolume(pod, container)
	switch {
	case own == 0:
		return memory
	case memory == 0:
		return own
	}
	return min(own, memory)
}

// shmVolume is the size of the emptyDir in memory that a container has at /dev/shm, 0 without one.
func shmVolume(pod *corev1.Pod, container string) sharing.Bytes {
	c := containerOf(pod, container)
	if c == nil {
		return 0
	}
	for _, m := range c.VolumeMounts {
		if path.Clean(m.MountPath) != "/dev/shm" {
			continue
		}
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			if dir := v.EmptyDir; v.Name == m.Name && dir != nil && dir.Medium == corev1.StorageMediumMemory && dir.SizeLimit != nil {
				return bytesOf(dir.SizeLimit.Value())
			}
		}
	}
	return 0
}

// podMemory is the limit of memory of a pod: its own, else the sum of those of the containers that
// run together; 0 if one of them has none.
func podMemory(pod *corev1.Pod) sharing.Bytes {
	if r := pod.Spec.Resources; r != nil {
		if limit, is := r.Limits[corev1.ResourceMemory]; is {
			return bytesOf(limit.Value())
		}
	}
	var sum sharing.Bytes
	for c, kind := range corepod.Containers(pod) {
		if kind == sharing.Init {
			continue // it ends before the others begin
		}
		limit := bytesOf(c.Resources.Limits.Memory().Value())
		if limit == 0 {
			return 0
		}
		sum = sum.Plus(limit)
	}
	return sum
}

// bytesOf is an amount that a pod names; the API server refuses negative ones.
func bytesOf(amount int64) sharing.Bytes { return sharing.Bytes(max(amount, 0)) }
