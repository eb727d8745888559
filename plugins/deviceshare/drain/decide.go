// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"deviceshare/sharing/upgrade"
)

// Decision is what becomes of the pods that hold devices of a node. Both lists are in order of
// names.
type Decision struct {
	// Leave are those that have to be evicted.
	Leave []*corev1.Pod
	// Stay are those that nobody evicts, though the driver cannot be unloaded while they run.
	Stay []Staying
}

// Staying is a pod that is not evicted.
type Staying struct {
	Pod *corev1.Pod
	Why string
}

// Empties reports whether the pods that hold devices of a node have to leave it now: the operator
// waits for that, and has closed the node to others.
func Empties(n *corev1.Node) bool {
	return n.Spec.Unschedulable && upgrade.PhaseOf(n.Labels) == upgrade.Emptying
}

// Decide says what becomes of the pods that hold devices of a node that Empties.
func Decide(holders []*corev1.Pod) Decision {
	var d Decision
	for _, pod := range slices.SortedFunc(slices.Values(holders), byName) {
		switch why := reasonToStay(pod); {
		case podutil.IsPodTerminal(pod) || pod.DeletionTimestamp != nil:
		case why != "":
			d.Stay = append(d.Stay, Staying{pod, why})
		default:
			d.Leave = append(d.Leave, pod)
		}
	}
	return d
}

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// reasonToStay says why a pod is not evicted, "" if it is.
func reasonToStay(pod *corev1.Pod) string {
	switch {
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return "the kubelet makes it from a file: take that off the node"
	case pod.Labels[upgrade.SkipLabel] == "true":
		return "its label " + upgrade.SkipLabel + " spares it"
	case metav1.GetControllerOf(pod) == nil:
		return "no controller would make it again: delete it yourself"
	}
	return ""
}
