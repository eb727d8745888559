// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// nodeKeys and podKeys are the annotations that are kept: those that the readers of nodes and pods
// name. Others may hold anything.
func nodeKeys() []string {
	return append(wire.NodeKeys(), wire.NodeConfig, wire.NodeWithdraw)
}

func podKeys() []string { return append(wire.PlacementKeys(), request.Annotations()...) }

func groupKeys() []string { return []string{wire.GroupName, wire.VolcanoGroupName} }

// hasDevices reports whether a pod may ask for devices or hold some.
func hasDevices(p *corev1.Pod) bool {
	_, placed := p.Annotations[wire.PodPlacement]
	return placed || corepod.AsksExtended(p)
}

func isMember(p *corev1.Pod) bool {
	return slices.ContainsFunc(groupKeys(), func(key string) bool { return p.Annotations[key] != "" })
}

// trimMeta keeps names, identity, age and the annotations of the keys.
func trimMeta(m *metav1.ObjectMeta, keys []string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, key := range keys {
		if value, ok := m.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&out, key, value)
		}
	}
	return out
}

func trimNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: trimMeta(&n.ObjectMeta, nodeKeys())}
	out.Spec.Unschedulable = n.Spec.Unschedulable
	out.Status.NodeInfo.KubeletVersion = n.Status.NodeInfo.KubeletVersion
	out.Status.NodeInfo.ContainerRuntimeVersion = n.Status.NodeInfo.ContainerRuntimeVersion
	out.Status.Allocatable = onlyExtended(n.Status.Allocatable)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
		}
	}
	return out
}

func trimPod(p *corev1.Pod, like *containerCache) *corev1.Pod {
	if !hasDevices(p) {
		return trimMember(p)
	}
	out := &corev1.Pod{ObjectMeta: trimMeta(&p.ObjectMeta, podKeys())}
	out.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, SchedulerName: p.Spec.SchedulerName,
		SchedulingGates: slices.Clone(p.Spec.SchedulingGates), SecurityContext: onlyPodUser(p.Spec.SecurityContext),
		InitContainers: like.trimCached(p.Spec.InitContainers), Containers: like.trimCached(p.Spec.Containers),
		PriorityClassName: p.Spec.PriorityClassName, ActiveDeadlineSeconds: p.Spec.ActiveDeadlineSeconds,
		Affinity: onlyAcrossNamespaces(p), ResourceClaims: onlyClaimNames(p),
	}
	out.Status = corev1.PodStatus{
		Phase: p.Status.Phase, QOSClass: p.Status.QOSClass,
		InitContainerStatuses: trimStatuses(p.Status.InitContainerStatuses), ContainerStatuses: trimStatuses(p.Status.ContainerStatuses),
	}
	out.Status.Conditions = onlyScheduled(p.Status.Conditions)
	return out
}

// onlyClaimNames keeps that a pod has resource claims, and their names in the pod.
func onlyClaimNames(p *corev1.Pod) (kept []corev1.PodResourceClaim) {
	for i := range p.Spec.ResourceClaims {
		kept = append(kept, corev1.PodResourceClaim{Name: p.Spec.ResourceClaims[i].Name})
	}
	return kept
}

// onlyAcrossNamespaces keeps of a pod's affinity that it looks at other namespaces, and not how:
// quotas may count such pods only.
func onlyAcrossNamespaces(p *corev1.Pod) *corev1.Affinity {
	if !corepod.LooksAcrossNamespaces(p) {
		return nil
	}
	across := corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{across}}}
}

// trimMember keeps of a pod without devices what tells whether it counts for its gang.
func trimMember(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: trimMeta(&p.ObjectMeta, groupKeys())}
	out.Spec.NodeName = p.Spec.NodeName
	out.Status = corev1.PodStatus{Phase: p.Status.Phase, Conditions: onlyScheduled(p.Status.Conditions)}
	return out
}

func onlyScheduled(list []corev1.PodCondition) []corev1.PodCondition {
	for _, c := range list {
		if c.Type == corev1.PodScheduled {
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}}
		}
	}
	return nil
}

func trimContainers(list []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, 0, len(list))
	for i := range list {
		c := &list[i]
		kept := corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		kept.Resources.Limits, kept.Resources.Requests = onlyExtended(c.Resources.Limits), onlyExtended(c.Resources.Requests)
		if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
			kept.SecurityContext = &corev1.SecurityContext{RunAsUser: s.RunAsUser}
		}
		out = append(out, kept)
	}
	return out
}

// trimStatuses keeps what tells whether a container has ever run, and why it does not run yet.
func trimStatuses(list []corev1.ContainerStatus) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, 0, len(list))
	for i := range list {
		s := &list[i]
		out = append(out, corev1.ContainerStatus{Name: s.Name, State: trimRun(&s.State), LastTerminationState: trimRun(&s.LastTerminationState)})
	}
	return out
}

func trimRun(s *corev1.ContainerState) corev1.ContainerState {
	switch {
	case s.Running != nil:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.Running.StartedAt}}
	case s.Terminated != nil:
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: s.Terminated.StartedAt}}
	case s.Waiting != nil: // its message may name the image
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: s.Waiting.Reason}}
	}
	return corev1.ContainerState{}
}

func onlyPodUser(s *corev1.PodSecurityContext) *corev1.PodSecurityContext {
	if s == nil || s.RunAsUser == nil {
		return nil
	}
	return &corev1.PodSecurityContext{RunAsUser: s.RunAsUser}
}

// onlyExtended keeps the resources whose names have a domain.
func onlyExtended(list corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(list)
	maps.DeleteFunc(out, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return !strings.Contains(string(name), "/")
	})
	return out
}

func trimGroup(g *schedulingv1beta1.PodGroup) *schedulingv1beta1.PodGroup {
	out := &schedulingv1beta1.PodGroup{ObjectMeta: trimMeta(&g.ObjectMeta, []string{schedulingv1beta1.PodPreemptable})}
	out.Spec.MinMember, out.Spec.Queue, out.Spec.PriorityClassName = g.Spec.MinMember, g.Spec.Queue, g.Spec.PriorityClassName
	out.Spec.MinResources, out.Spec.MinTaskMember = g.Spec.MinResources, g.Spec.MinTaskMember
	out.Status.Phase = g.Status.Phase
	return out
}

func trimQueue(q *schedulingv1beta1.Queue) *schedulingv1beta1.Queue {
	out := &schedulingv1beta1.Queue{ObjectMeta: trimMeta(&q.ObjectMeta, nil)}
	out.Spec.Weight, out.Spec.Parent = q.Spec.Weight, q.Spec.Parent
	out.Spec.Capability, out.Spec.Deserved = onlyExtended(q.Spec.Capability), onlyExtended(q.Spec.Deserved)
	out.Spec.Guarantee.Resource = onlyExtended(q.Spec.Guarantee.Resource)
	out.Status.State, out.Status.Allocated = q.Status.State, onlyExtended(q.Status.Allocated)
	return out
}

// trimQuota keeps what may limit devices: amounts of extended resources. The scopes say whose.
func trimQuota(q *corev1.ResourceQuota) *corev1.ResourceQuota {
	out := &corev1.ResourceQuota{ObjectMeta: trimMeta(&q.ObjectMeta, nil)}
	out.Spec.Hard, out.Spec.Scopes = onlyExtended(q.Spec.Hard), slices.Clone(q.Spec.Scopes)
	out.Spec.ScopeSelector = q.Spec.ScopeSelector.DeepCopy()
	return out
}
