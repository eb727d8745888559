// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// KeptOff is what keeps a pod off a node besides its devices and sums, in the words of the
// predicates that do so; "" if nothing known does: a cordon, a taint, a selector. There are more
// such predicates.
func KeptOff(pod *corev1.Pod, node *corev1.Node) string {
	if node == nil {
		return "node(s) are not known yet"
	}
	unschedulable := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if node.Spec.Unschedulable && !v1helper.TolerationsTolerateTaint(pod.Spec.Tolerations, &unschedulable) {
		return "node(s) were unschedulable"
	}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !match {
		return "node(s) didn't match Pod's node affinity/selector"
	}
	hard := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	if taint, untolerated := v1helper.FindMatchingUntoleratedTaint(node.Spec.Taints, pod.Spec.Tolerations, hard); untolerated {
		return fmt.Sprintf("node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value)
	}
	return ""
}
