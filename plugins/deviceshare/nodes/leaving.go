// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Leaving is what becomes of the pods that hold what is emptied. Both lists are in order of names.
type Leaving struct {
	// Leave are those that have to be evicted.
	Leave []*corev1.Pod
	// Stay are those that nobody evicts, though it is not empty while they run.
	Stay []Staying
}

// Staying is a pod that is not evicted.
type Staying struct {
	Pod *corev1.Pod
	Why string
}

// UnknownHolder is why a pod stays of which nobody can say what it has.
const UnknownHolder = "it cannot be read which devices it has: delete it yourself, or repair it"

// DecideLeaving says what becomes of the pods that have to leave. A pod with the label spared
// stays, if that is not "".
func DecideLeaving(holders []*corev1.Pod, spared string) Leaving {
	var d Leaving
	for _, pod := range slices.SortedFunc(slices.Values(holders), byName) {
		switch why := reasonToStay(pod, spared); {
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
func reasonToStay(pod *corev1.Pod, spared string) string {
	switch {
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return "the kubelet makes it from a file: take that off the node"
	case spared != "" && pod.Labels[spared] == "true":
		return "its label " + spared + " spares it"
	case metav1.GetControllerOf(pod) == nil:
		return "no controller would make it again: delete it yourself"
	}
	return ""
}
