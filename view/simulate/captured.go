// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/view/capture"
)

var errNoScheduling = errors.New("the capture does not say what the scheduler looks at besides devices: processors, taints, affinity, " +
	"priorities. It was taken by an earlier program: take it again with `kubectl deviceshare capture`")

// wholeNodes puts the two halves of the captured nodes together.
func wholeNodes(s *capture.State) []*corev1.Node {
	halves := make(map[string]*corev1.Node, len(s.Scheduling.Nodes))
	for _, n := range s.Scheduling.Nodes {
		halves[n.Name] = n
	}
	out := make([]*corev1.Node, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		n = n.DeepCopy()
		if half := halves[n.Name]; half != nil {
			n.Labels, n.Spec.Taints = half.Labels, half.Spec.Taints
			n.Status.Allocatable = mergeResources(n.Status.Allocatable, half.Status.Allocatable)
		}
		n.Status.Capacity = n.Status.Allocatable
		out = append(out, n)
	}
	return out
}

// wholePods puts the two halves of the captured pods together. Those that have ended take nothing
// and are left out, but for members of groups.
func wholePods(s *capture.State) []*corev1.Pod {
	halves := make(map[types.NamespacedName]*corev1.Pod, len(s.Pods))
	for _, p := range s.Pods {
		halves[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
	}
	out := make([]*corev1.Pod, 0, len(s.Scheduling.Pods))
	for _, p := range s.Scheduling.Pods {
		p = p.DeepCopy()
		if half := halves[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]; half != nil && half.UID == p.UID {
			completePod(p, half)
		}
		out = append(out, p)
	}
	return out
}

// completePod adds to a pod what the half that views read has of it.
func completePod(p, half *corev1.Pod) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	maps.Copy(p.Annotations, half.Annotations)
	p.Spec.SecurityContext, p.Spec.ActiveDeadlineSeconds, p.Status.QOSClass = half.Spec.SecurityContext, half.Spec.ActiveDeadlineSeconds, half.Status.QOSClass
	completeContainers(p.Spec.InitContainers, half.Spec.InitContainers)
	completeContainers(p.Spec.Containers, half.Spec.Containers)
	p.Status.InitContainerStatuses, p.Status.ContainerStatuses = half.Status.InitContainerStatuses, half.Status.ContainerStatuses
	p.Status.Conditions = half.Status.Conditions
}

func completeContainers(list, halves []corev1.Container) {
	for i := range list {
		if i >= len(halves) {
			return
		}
		c, half := &list[i], &halves[i]
		c.SecurityContext, c.Resources.Limits = half.SecurityContext, half.Resources.Limits
		c.Resources.Requests = mergeResources(c.Resources.Requests, half.Resources.Requests)
	}
}

func mergeResources(a, b corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(a)
	if out == nil {
		out = corev1.ResourceList{}
	}
	maps.Copy(out, b)
	return out
}
