// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// State is a cluster at one moment: what the API server knew. Objects must not be changed.
type State struct {
	// Taken is when it was read, zero if it is not known.
	Taken time.Time
	// Hashed says that names stand for others, see Hash.
	Hashed bool
	// DeviceConfig is the text of device-config.yaml, nil if the cluster has none.
	DeviceConfig *string
	Nodes        []*corev1.Node
	Pods         []*corev1.Pod
	Groups       []*schedulingv1beta1.PodGroup
	Queues       []*schedulingv1beta1.Queue
	// Quotas are those ResourceQuotas that may be about devices.
	Quotas []*corev1.ResourceQuota
	// Scheduling is what only a simulation needs, nil if it is not kept.
	Scheduling *Scheduling
	// Installation is what only the doctor needs, nil if it is not kept. No text holds it.
	Installation *Installation
	// Forbidden are the reads that the API server refused, as verb and resource: what they would
	// have told is not known.
	Forbidden []string
	// Unread are the lines that could not be read, for people.
	Unread []string
	// alike is set while a text is read.
	alike *containerCache
}

// Add takes in one object, trimmed, and reports whether it was kept. Where Scheduling is not nil it
// takes in its half of every object, and where Installation is not, what belongs to it.
func (s *State) Add(object any) bool {
	kept := s.Installation != nil && s.Installation.addObject(object)
	if s.Scheduling != nil {
		kept = s.Scheduling.addObject(object) || kept
	}
	return s.addForViews(object) || kept
}

func (s *State) addForViews(object any) bool {
	kept, ok := trimObject(object, s.alike)
	switch o := kept.(type) {
	case *corev1.Node:
		s.Nodes = append(s.Nodes, o)
	case *corev1.Pod:
		s.Pods = append(s.Pods, o)
	case *schedulingv1beta1.PodGroup:
		s.Groups = append(s.Groups, o)
	case *schedulingv1beta1.Queue:
		s.Queues = append(s.Queues, o)
	case *corev1.ResourceQuota:
		s.Quotas = append(s.Quotas, o)
	}
	return ok
}

// Trim returns what views show of one object, and false if they show nothing of it. They show pods
// that ask for extended resources or have a placement, and those that name a group: a gang counts
// all its pods.
func Trim(object any) (any, bool) { return trimObject(object, nil) }

func trimObject(object any, like *containerCache) (any, bool) {
	switch o := object.(type) {
	case *corev1.Node:
		return trimNode(o), true
	case *corev1.Pod:
		if hasDevices(o) || isMember(o) {
			return trimPod(o, like), true
		}
	case *schedulingv1beta1.PodGroup:
		return trimGroup(o), true
	case *schedulingv1beta1.Queue:
		return trimQueue(o), true
	case *corev1.ResourceQuota:
		if kept := trimQuota(o); len(kept.Spec.Hard) > 0 {
			return kept, true
		}
	}
	return nil, false
}

func (s *State) appendObjects(o *State) {
	if o.DeviceConfig != nil {
		s.DeviceConfig = o.DeviceConfig
	}
	s.Nodes, s.Pods = append(s.Nodes, o.Nodes...), append(s.Pods, o.Pods...)
	s.Groups, s.Queues = append(s.Groups, o.Groups...), append(s.Queues, o.Queues...)
	s.Quotas = append(s.Quotas, o.Quotas...)
	if s.Scheduling != nil {
		s.Scheduling.appendObjects(o.Scheduling)
	}
}

// Sort puts the objects into the order of their names, so that equal clusters have equal texts.
func (s *State) Sort() {
	slices.SortFunc(s.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Groups, func(a, b *schedulingv1beta1.PodGroup) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Queues, func(a, b *schedulingv1beta1.Queue) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Quotas, func(a, b *corev1.ResourceQuota) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.Scheduling.sort()
	s.Installation.sort()
}
