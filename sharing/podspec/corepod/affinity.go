// SPDX-License-Identifier: Apache-2.0

package corepod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// LooksAcrossNamespaces reports whether a pod looks for pods of other namespaces, or stays away
// from them: what the scope CrossNamespacePodAffinity of a ResourceQuota is about.
func LooksAcrossNamespaces(pod *corev1.Pod) bool {
	return slices.ContainsFunc(affinityTerms(pod), func(t corev1.PodAffinityTerm) bool {
		return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
	})
}

// affinityTerms returns the terms by which a pod looks for other pods, or stays away from them.
func affinityTerms(pod *corev1.Pod) (terms []corev1.PodAffinityTerm) {
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for i := range preferred {
			terms = append(terms, preferred[i].PodAffinityTerm)
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		add(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return terms
}
