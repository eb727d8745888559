// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// UseGPU runs steps of the CUDA client as a program of the host, outside of all pods, until it or
// ctx ends.
func (c *Cluster) UseGPU(ctx context.Context, steps ...string) (string, error) {
	return c.inside.run(ctx, c.gpuEnv(), filepath.Join(c.layout.repo, "e2e", "fakegpu", "build", "cudaclient"), steps...)
}

// TakeDevices gives a pod's first container every device of the node without asking the product, as
// a privileged pod has them that mounts the driver's files.
func (c *Cluster) TakeDevices(pod *corev1.Pod) {
	privileged := true
	main := &pod.Spec.Containers[0]
	main.SecurityContext = &corev1.SecurityContext{Privileged: &privileged}
	for i, dir := range []string{c.layout.gpuDir(), c.layout.libDir()} {
		name := []string{"state", "driver"}[i]
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		})
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: dir})
	}
	for _, line := range c.gpuEnv() {
		name, value, _ := strings.Cut(line, "=")
		main.Env = append(main.Env, corev1.EnvVar{Name: name, Value: value})
	}
}
