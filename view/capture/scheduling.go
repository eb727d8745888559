// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing/wire"
)

// Scheduling is what Volcano looks at besides devices. Only a simulation needs it; views do not
// read it. Nodes and Pods are halves: what a State has of them is not in here again.
type Scheduling struct {
	// Config is the text of volcano-scheduler.conf, nil if it was not found or must not be read.
	Config *string
	Nodes  []*corev1.Node
	// Pods are all pods that take something of a node or wait for one, those without devices too.
	Pods    []*corev1.Pod
	Queues  []*schedulingv1beta1.Queue
	Classes []*schedulingv1.PriorityClass
	// Budgets say how many of the pods that they select may be evicted.
	Budgets []*policyv1.PodDisruptionBudget
	// Namespaces have all their labels: in their affinity to other pods, pods select namespaces by
	// any label, and so may pods that a simulation adds.
	Namespaces []*corev1.Namespace
}

// schedulingPodKeys are the annotations by which Volcano's plugins tell pods apart.
func schedulingPodKeys() []string {
	return []string{
		wire.GroupName, wire.VolcanoGroupName, "volcano.sh/task-spec", "volcano.sh/task-index",
		schedulingv1beta1.PodPreemptable, schedulingv1beta1.CooldownTime, schedulingv1beta1.RevocableZone, schedulingv1beta1.QueueNameAnnotationKey,
	}
}

// addObject takes in one object, trimmed. It reports whether the object was kept.
func (s *Scheduling) addObject(object any) bool {
	switch o := object.(type) {
	case *corev1.Node:
		s.Nodes = append(s.Nodes, schedulingNode(o))
	case *corev1.Pod:
		if hasEnded(o) && !isMember(o) {
			return false
		}
		s.Pods = append(s.Pods, schedulingPod(o))
	case *schedulingv1beta1.Queue:
		s.Queues = append(s.Queues, schedulingQueue(o))
	case *schedulingv1.PriorityClass:
		s.Classes = append(s.Classes, &schedulingv1.PriorityClass{
			ObjectMeta: trimMeta(&o.ObjectMeta, nil), Value: o.Value, GlobalDefault: o.GlobalDefault, PreemptionPolicy: o.PreemptionPolicy,
		})
	case *policyv1.PodDisruptionBudget:
		s.Budgets = append(s.Budgets, schedulingBudget(o))
	case *corev1.Namespace:
		s.Namespaces = append(s.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: maps.Clone(o.Labels)}})
	default:
		return false
	}
	return true
}

func (s *Scheduling) appendObjects(o *Scheduling) {
	if o.Config != nil {
		s.Config = o.Config
	}
	s.Nodes, s.Pods = append(s.Nodes, o.Nodes...), append(s.Pods, o.Pods...)
	s.Queues, s.Classes = append(s.Queues, o.Queues...), append(s.Classes, o.Classes...)
	s.Budgets, s.Namespaces = append(s.Budgets, o.Budgets...), append(s.Namespaces, o.Namespaces...)
}

func (s *Scheduling) sort() {
	if s == nil {
		return
	}
	slices.SortFunc(s.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Queues, func(a, b *schedulingv1beta1.Queue) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Classes, func(a, b *schedulingv1.PriorityClass) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Budgets, func(a, b *policyv1.PodDisruptionBudget) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Namespaces, func(a, b *corev1.Namespace) int { return cmp.Compare(a.Name, b.Name) })
}

// hasEnded reports whether a pod takes nothing of its node any more.
func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func schedulingNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: maps.Clone(n.Labels)}}
	out.Spec.Taints = slices.Clone(n.Spec.Taints)
	for i := range out.Spec.Taints {
		out.Spec.Taints[i].TimeAdded = nil
	}
	out.Status.Allocatable = withoutExtended(n.Status.Allocatable)
	return out
}

func schedulingPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: trimMeta(&p.ObjectMeta, schedulingPodKeys())}
	out.Labels, out.OwnerReferences = maps.Clone(p.Labels), controllerKind(p)
	out.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, SchedulerName: p.Spec.SchedulerName, SchedulingGates: slices.Clone(p.Spec.SchedulingGates),
		NodeSelector: p.Spec.NodeSelector, Affinity: p.Spec.Affinity, Tolerations: p.Spec.Tolerations,
		TopologySpreadConstraints: p.Spec.TopologySpreadConstraints, ResourceClaims: onlyClaimNames(p),
		Priority: p.Spec.Priority, PriorityClassName: p.Spec.PriorityClassName, PreemptionPolicy: p.Spec.PreemptionPolicy,
		HostNetwork: p.Spec.HostNetwork, Overhead: p.Spec.Overhead, TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
		InitContainers: schedulingContainers(p.Spec.InitContainers), Containers: schedulingContainers(p.Spec.Containers),
	}
	out.Status.Phase, out.Status.StartTime = p.Status.Phase, p.Status.StartTime
	return out
}

// controllerKind keeps of the owners of a pod who makes it again, and of that its kind.
func controllerKind(p *corev1.Pod) []metav1.OwnerReference {
	if by := metav1.GetControllerOf(p); by != nil {
		return []metav1.OwnerReference{{Kind: by.Kind, Controller: by.Controller}}
	}
	return nil
}

// schedulingContainers keeps what containers request beside devices, and the ports that they take
// of the node.
func schedulingContainers(list []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, 0, len(list))
	for i := range list {
		c := &list[i]
		kept := corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		kept.Resources.Requests = withoutExtended(c.Resources.Requests)
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				kept.Ports = append(kept.Ports, corev1.ContainerPort{HostPort: p.HostPort, HostIP: p.HostIP, Protocol: p.Protocol, ContainerPort: p.ContainerPort})
			}
		}
		out = append(out, kept)
	}
	return out
}

func schedulingQueue(q *schedulingv1beta1.Queue) *schedulingv1beta1.Queue {
	out := &schedulingv1beta1.Queue{ObjectMeta: trimMeta(&q.ObjectMeta, nil)}
	out.Spec = schedulingv1beta1.QueueSpec{
		Weight: q.Spec.Weight, Parent: q.Spec.Parent, Capability: q.Spec.Capability, Deserved: q.Spec.Deserved,
		Guarantee: q.Spec.Guarantee, Reclaimable: q.Spec.Reclaimable, Priority: q.Spec.Priority, DequeueStrategy: q.Spec.DequeueStrategy,
	}
	out.Status.State = q.Status.State
	return out
}

// schedulingBudget keeps which pods a budget selects and what its status allows, by which the
// scheduler decides. How many pods the budget wants is for the controller that writes the status.
func schedulingBudget(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	out := &policyv1.PodDisruptionBudget{ObjectMeta: trimMeta(&b.ObjectMeta, nil)}
	out.Spec.Selector = b.Spec.Selector
	out.Status.DisruptionsAllowed, out.Status.DisruptedPods = b.Status.DisruptionsAllowed, b.Status.DisruptedPods
	return out
}

// withoutExtended keeps the resources whose names have no domain; the others are in a State.
func withoutExtended(list corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(list)
	maps.DeleteFunc(out, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return strings.Contains(string(name), "/")
	})
	if len(out) == 0 {
		return nil
	}
	return out
}
