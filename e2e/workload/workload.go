// SPDX-License-Identifier: Apache-2.0

// Package workload builds the pods that the suites and the demo run: containers of the fake
// CUDA client that ask for shares. Its pods contain only what a user would write in a
// manifest.
package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The resources users ask for.
const (
	Number     corev1.ResourceName = "volcano.sh/vgpu-number"
	Memory     corev1.ResourceName = "volcano.sh/vgpu-memory"
	Cores      corev1.ResourceName = "volcano.sh/vgpu-cores"
	Percentage corev1.ResourceName = "volcano.sh/vgpu-memory-percentage"
)

// Ask is what one container asks for. Zero fields are not written.
type Ask struct {
	Number     int64 // devices
	Memory     int64 // MiB of each device
	Cores      int64 // percent of each device
	Percentage int64 // percent of each device's memory
}

// limits writes the ask as resource limits.
func (a Ask) limits() corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, n := range map[corev1.ResourceName]int64{Number: a.Number, Memory: a.Memory, Cores: a.Cores, Percentage: a.Percentage} {
		if n != 0 {
			list[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	return list
}

// Pod is a pod under construction.
type Pod struct {
	image string
	pod   corev1.Pod
}

// New begins a pod that Volcano schedules and that runs once, from the given
// image. The image must be on the node already.
func New(name, image string) *Pod {
	grace := int64(0)
	token := false // the steps ask no API server; a token costs a call and a mount
	return &Pod{image: image, pod: corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec: corev1.PodSpec{
			SchedulerName:                 "volcano",
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  &token,
		},
	}}
}

// App adds a container that runs the steps of the CUDA client.
func (p *Pod) App(name string, ask Ask, steps ...string) *Pod {
	p.pod.Spec.Containers = append(p.pod.Spec.Containers, p.container(name, ask, steps))
	return p
}

// Init adds an init container that runs to its end before the next one.
func (p *Pod) Init(name string, ask Ask, steps ...string) *Pod {
	p.pod.Spec.InitContainers = append(p.pod.Spec.InitContainers, p.container(name, ask, steps))
	return p
}

// Sidecar adds an init container that stays.
func (p *Pod) Sidecar(name string, ask Ask, steps ...string) *Pod {
	c := p.container(name, ask, steps)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	p.pod.Spec.InitContainers = append(p.pod.Spec.InitContainers, c)
	return p
}

// Plain adds a container that asks for no device and runs a line of shell.
func (p *Pod) Plain(name, line string) *Pod {
	c := p.container(name, Ask{}, nil)
	c.Command = []string{"/bin/sh", "-c", line}
	p.pod.Spec.Containers = append(p.pod.Spec.Containers, c)
	return p
}

// Annotate sets an annotation, such as volcano.sh/vgpu-mode.
func (p *Pod) Annotate(key, value string) *Pod {
	p.pod.Annotations[key] = value
	return p
}

// Label sets a label.
func (p *Pod) Label(key, value string) *Pod {
	p.pod.Labels[key] = value
	return p
}

// AsUser says as which user the containers run. In mode mps others may share the device then.
func (p *Pod) AsUser(id int64) *Pod {
	p.pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &id}
	return p
}

// Edit changes what has no method of its own.
func (p *Pod) Edit(change func(*corev1.Pod)) *Pod {
	change(&p.pod)
	return p
}

// Build returns the pod.
func (p *Pod) Build() *corev1.Pod { return p.pod.DeepCopy() }

func (p *Pod) container(name string, ask Ask, steps []string) corev1.Container {
	return corev1.Container{
		Name:            name,
		Image:           p.image,
		ImagePullPolicy: corev1.PullNever,
		Command:         append([]string{"/usr/bin/cudaclient"}, steps...),
		Resources:       corev1.ResourceRequirements{Limits: ask.limits()},
	}
}

// MiB is a step argument: an amount of memory in MiB.
func MiB(n int64) string { return strconv.FormatInt(n, 10) }
