// SPDX-License-Identifier: Apache-2.0

package corepod

import corev1 "k8s.io/api/core/v1"

// QueueGate is a scheduling gate that the webhook of Volcano 1.15 sets for pods with the annotation
// of the same name (feature SchedulingGatesQueueAdmission). Only the scheduler of that version
// removes it.
const QueueGate = "scheduling.volcano.sh/queue-allocation-gate"

// Gate returns the scheduling gate for which a pod waits, and who has to remove it; empty without
// one.
func Gate(pod *corev1.Pod) (gate, remover string) {
	if len(pod.Spec.SchedulingGates) == 0 {
		return "", ""
	}
	gate = pod.Spec.SchedulingGates[0].Name
	for _, g := range pod.Spec.SchedulingGates {
		if g.Name == QueueGate {
			return g.Name, "only the scheduler of Volcano 1.15 removes it: make the pod again without the annotation " + QueueGate
		}
	}
	return gate, "whoever set it has to remove it"
}
