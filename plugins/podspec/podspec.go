// SPDX-License-Identifier: Apache-2.0

// Package podspec translates Kubernetes pods into the neutral descriptions that
// the domain reads. It decides nothing: what a resource name or an annotation
// means is said in sharing/request and sharing/wire. The scheduler plugin and
// the admission webhook both read pods through it, so that they cannot disagree.
package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// Read describes a pod. The pod is not changed, and its annotations are shared
// with the result.
func Read(pod *corev1.Pod) request.Pod {
	out := request.Pod{
		Namespace:     pod.Namespace,
		UID:           string(pod.UID),
		SchedulerName: pod.Spec.SchedulerName,
		Annotations:   pod.Annotations,
		Containers:    make([]request.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers)),
	}
	each(pod, func(c *corev1.Container, kind sharing.ContainerKind) {
		out.Containers = append(out.Containers, request.Container{Name: c.Name, Kind: kind, Resources: extended(c)})
	})
	return out
}

// ContainerRefs lists every container of the pod in the order of its spec, init
// containers first, with whether it asks for devices: annotations written by
// older schedulers name containers by position only.
func ContainerRefs(pod *corev1.Pod, names request.Names) []wire.ContainerRef {
	refs := make([]wire.ContainerRef, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	each(pod, func(c *corev1.Container, kind sharing.ContainerKind) {
		refs = append(refs, wire.ContainerRef{Name: c.Name, Kind: kind, Asks: asks(c, names), Count: count(c, names.Number)})
	})
	return refs
}

// count is the amount of a resource, as extended returns it.
func count(c *corev1.Container, name string) int {
	q, ok := c.Resources.Limits[corev1.ResourceName(name)]
	if !ok {
		q = c.Resources.Requests[corev1.ResourceName(name)]
	}
	return int(q.Value())
}

// Asks reports whether any container of the pod names one of the resources. It
// allocates nothing: the scheduler asks it of every pod.
func Asks(pod *corev1.Pod, names request.Names) bool {
	for i := range pod.Spec.Containers {
		if asks(&pod.Spec.Containers[i], names) {
			return true
		}
	}
	for i := range pod.Spec.InitContainers {
		if asks(&pod.Spec.InitContainers[i], names) {
			return true
		}
	}
	return false
}

// AsksExtended reports whether any container of the pod asks for more than zero
// of any extended resource.
func AsksExtended(pod *corev1.Pod) bool {
	found := false
	each(pod, func(c *corev1.Container, _ sharing.ContainerKind) {
		for _, amount := range extended(c) {
			found = found || amount != 0
		}
	})
	return found
}

// each visits the containers, init containers first.
func each(pod *corev1.Pod, visit func(*corev1.Container, sharing.ContainerKind)) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		visit(c, initKind(c))
	}
	for i := range pod.Spec.Containers {
		visit(&pod.Spec.Containers[i], sharing.App)
	}
}

// initKind tells a sidecar from an init container that ends: Kubernetes writes a
// sidecar as an init container that is always restarted.
func initKind(c *corev1.Container) sharing.ContainerKind {
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return sharing.Sidecar
	}
	return sharing.Init
}

// extended returns the amounts of the extended resources a container names. The
// API server demands that limit and request of one are equal, or the request
// absent; before it has defaulted them either may stand alone.
func extended(c *corev1.Container) map[string]int64 {
	out := make(map[string]int64, 3)
	for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for name, q := range list {
			if strings.Contains(string(name), "/") {
				out[string(name)] = q.Value()
			}
		}
	}
	return out
}

func asks(c *corev1.Container, n request.Names) bool {
	if len(c.Resources.Limits) == 0 && len(c.Resources.Requests) == 0 {
		return false
	}
	for _, name := range [...]string{n.Number, n.Memory, n.Cores, n.Percentage} {
		q, ok := c.Resources.Limits[corev1.ResourceName(name)]
		if !ok {
			q = c.Resources.Requests[corev1.ResourceName(name)]
		}
		if name != "" && !q.IsZero() { // writing zero is how a template says "none"
			return true
		}
	}
	return false
}
