// SPDX-License-Identifier: Apache-2.0

// Package corepod reads Kubernetes pods for package podspec. It is the only
// adapter between the two, for the scheduler and the webhook as well as for the
// device plugin.
//
// It holds what is particular to Kubernetes' type: a sidecar is an init container
// with restartPolicy Always; the amount of an extended resource is its limit, or
// its request where it has no limit; fractions are rounded away from zero, and an
// amount beyond 64 bits counts as the largest there is.
//
// Functions here change no pod and are safe for concurrent use.
package corepod

import (
	"iter"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// Read describes a pod. The result shares the pod's annotations and labels.
func Read(pod *corev1.Pod) podspec.Pod {
	out := podspec.Pod{
		Namespace:     pod.Namespace,
		UID:           string(pod.UID),
		SchedulerName: pod.Spec.SchedulerName,
		Annotations:   pod.Annotations,
		Labels:        pod.Labels,
		Containers:    make([]podspec.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers)),
	}
	for c, kind := range Containers(pod) {
		out.Containers = append(out.Containers, podspec.Container{Name: c.Name, Kind: kind, Resources: extendedResources(c), User: User(pod, c)})
	}
	return out
}

// User is as whom a container runs: what it says itself, else what its pod says.
func User(pod *corev1.Pod, c *corev1.Container) sharing.User {
	if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
		return sharing.KnownUser(*s.RunAsUser)
	}
	if s := pod.Spec.SecurityContext; s != nil && s.RunAsUser != nil {
		return sharing.KnownUser(*s.RunAsUser)
	}
	return sharing.User{}
}

// Isolation is how far the pod's containers are apart from their node.
func Isolation(pod *corev1.Pod) podspec.Isolation {
	var i podspec.Isolation
	if name := pod.Spec.RuntimeClassName; name != nil {
		i.RuntimeClass = *name
	}
	i.UserNamespace = pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
	return i
}

// Refs lists every container of the pod in the order of its spec, init containers
// first. Legacy placements name containers by their position only.
func Refs(pod *corev1.Pod, names podspec.Names) []wire.ContainerRef {
	refs := make([]wire.ContainerRef, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for c, kind := range Containers(pod) {
		refs = append(refs, podspec.Ref(Container{c}, c.Name, kind, names))
	}
	return refs
}

// Asks reports whether any container of the pod asks for devices. It allocates
// nothing: the scheduler calls it for every pod.
func Asks(pod *corev1.Pod, names podspec.Names) bool {
	for i := range pod.Spec.Containers {
		if podspec.ContainerAsks(Container{&pod.Spec.Containers[i]}, names) {
			return true
		}
	}
	for i := range pod.Spec.InitContainers {
		if podspec.ContainerAsks(Container{&pod.Spec.InitContainers[i]}, names) {
			return true
		}
	}
	return false
}

// AsksUnserved reports whether any container of the pod asks for an amount other than zero of a
// resource that Names.IsUnserved. It allocates nothing.
func AsksUnserved(pod *corev1.Pod, names podspec.Names) bool {
	return anyUnserved(pod.Spec.Containers, names) || anyUnserved(pod.Spec.InitContainers, names)
}

func anyUnserved(containers []corev1.Container, names podspec.Names) bool {
	for i := range containers {
		r := &containers[i].Resources
		if listsUnserved(r.Limits, names) || listsUnserved(r.Requests, names) {
			return true
		}
	}
	return false
}

func listsUnserved(list corev1.ResourceList, names podspec.Names) bool {
	for name, amount := range list {
		if names.IsUnserved(string(name)) && !amount.IsZero() {
			return true
		}
	}
	return false
}

// AsksExtended reports whether any container of the pod asks for an amount other
// than zero of any extended resource, whoever publishes it.
func AsksExtended(pod *corev1.Pod) bool {
	for c := range Containers(pod) {
		for _, amount := range extendedResources(c) {
			if amount != 0 {
				return true
			}
		}
	}
	return false
}

// Container reads the amounts of one Kubernetes container.
type Container struct{ *corev1.Container }

// Amount returns the limit of a resource, or its request where it has no limit;
// false if the container names it as neither. The API server demands that limit
// and request of an extended resource are equal; before it has set defaults, either
// may stand alone.
func (c Container) Amount(name string) (int64, bool) {
	if name == "" || len(c.Resources.Limits) == 0 && len(c.Resources.Requests) == 0 {
		return 0, false
	}
	q, ok := c.Resources.Limits[corev1.ResourceName(name)]
	if !ok {
		q, ok = c.Resources.Requests[corev1.ResourceName(name)]
	}
	return roundQuantity(&q), ok
}

// roundQuantity is the amount as an integer, rounded away from zero. An amount beyond 64
// bits becomes the largest one: Quantity.Value makes it an arbitrary one, such as 0.
func roundQuantity(q *resource.Quantity) int64 {
	if amount, exact := q.AsInt64(); exact {
		return amount
	}
	switch {
	case q.CmpInt64(math.MaxInt64) > 0:
		return math.MaxInt64
	case q.CmpInt64(math.MinInt64) < 0:
		return math.MinInt64
	}
	return q.Value()
}

// Containers yields the containers that can have resources, init containers first.
func Containers(pod *corev1.Pod) iter.Seq2[*corev1.Container, sharing.ContainerKind] {
	return func(yield func(*corev1.Container, sharing.ContainerKind) bool) {
		for i := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[i]; !yield(c, initKind(c)) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i], sharing.App) {
				return
			}
		}
	}
}

// initKind tells a sidecar from an init container that ends.
func initKind(c *corev1.Container) sharing.ContainerKind {
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return sharing.Sidecar
	}
	return sharing.Init
}

// extendedResources returns the amounts of the extended resources that a container names.
// Their names contain a slash.
func extendedResources(c *corev1.Container) map[string]int64 {
	out := make(map[string]int64, 3)
	for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for name, q := range list {
			if strings.Contains(string(name), "/") {
				out[string(name)] = roundQuantity(&q)
			}
		}
	}
	return out
}
