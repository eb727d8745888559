// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
)

// The oracle is the code by which Kubernetes decides which quotas count a pod. It counts none that
// is about no amount of pods, so the quota has one of these too.
func TestAQuotaCountsThePodsThatKubernetesWouldCount(t *testing.T) {
	settings := DefaultSettings()
	kubernetes := core.NewPodEvaluator(nil, clock.RealClock{})
	counted, left := 0, 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 9))
		q, pod := randomQuota(r), randomPod(r)
		read := settings.NamespaceQuotas([]*corev1.ResourceQuota{q})
		if len(read) != 1 || len(read[0].Limits) != 1 {
			t.Fatalf("read %+v", read)
		}
		got := read[0].AppliesTo(pod)
		want, err := kubernetes.Matches(q, pod)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("seed %d: counts %v, Kubernetes %v\n%+v\n%+v\n%+v", seed, got, want, q.Spec, pod.Spec, pod.Status.QOSClass)
		}
		if got {
			counted++
		} else {
			left++
		}
	}
	if counted < 1000 || left < 1000 {
		t.Errorf("%d counted and %d not: this shows little", counted, left)
	}
}

func TestAQuotaOfAnotherNamespaceCountsNoPod(t *testing.T) {
	settings := DefaultSettings()
	q := randomQuota(rand.New(rand.NewPCG(1, 1)))
	q.Spec.Scopes, q.Spec.ScopeSelector = nil, nil
	read := settings.NamespaceQuotas([]*corev1.ResourceQuota{q})
	here, there := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other"}}
	if !read[0].AppliesTo(&here) || read[0].AppliesTo(&there) {
		t.Errorf("counts the pod of its namespace: %v, that of another: %v", read[0].AppliesTo(&here), read[0].AppliesTo(&there))
	}
}

func randomQuota(r *rand.Rand) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "gpus"}}
	q.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("5"), "limits.volcano.sh/vgpu-memory": resource.MustParse("5")}
	q.Status.Hard = q.Spec.Hard // where Kubernetes looks
	scopes := []corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
		corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
		corev1.ResourceQuotaScopeVolumeAttributesClass,
	}
	operators := []corev1.ScopeSelectorOperator{
		corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn, corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist,
	}
	for range r.IntN(2) {
		q.Spec.Scopes = append(q.Spec.Scopes, scopes[r.IntN(len(scopes))])
	}
	if r.IntN(2) == 0 {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{}
		for range 1 + r.IntN(2) {
			one := corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operators[r.IntN(len(operators))]}
			if one.Operator == corev1.ScopeSelectorOpIn || one.Operator == corev1.ScopeSelectorOpNotIn {
				one.Values = []string{"high", "low"}[:1+r.IntN(2)]
			} else if r.IntN(3) == 0 { // the API server admits no other operator for these
				one = corev1.ScopedResourceSelectorRequirement{ScopeName: scopes[r.IntN(len(scopes))], Operator: corev1.ScopeSelectorOpExists}
			}
			q.Spec.ScopeSelector.MatchExpressions = append(q.Spec.ScopeSelector.MatchExpressions, one)
		}
	}
	return q
}

func randomPod(r *rand.Rand) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}
	pod.Spec.PriorityClassName = []string{"", "high", "low", "other"}[r.IntN(4)]
	if r.IntN(2) == 0 {
		pod.Spec.ActiveDeadlineSeconds = new(int64)
		*pod.Spec.ActiveDeadlineSeconds = 1 + r.Int64N(100)
	}
	limits := corev1.ResourceList{"volcano.sh/vgpu-number": resource.MustParse("1")}
	if r.IntN(2) == 0 {
		limits[corev1.ResourceCPU] = resource.MustParse("1")
	}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}}
	pod.Spec.Affinity = []*corev1.Affinity{nil, {}, randomAffinity(r)}[r.IntN(3)]
	pod.Status.QOSClass = qos.ComputePodQOS(pod) // as the API server does when it takes a pod in
	return pod
}

func randomAffinity(r *rand.Rand) *corev1.Affinity {
	term := corev1.PodAffinityTerm{TopologyKey: "zone"}
	switch r.IntN(3) {
	case 0:
		term.Namespaces = []string{"other"}
	case 1:
		term.NamespaceSelector = &metav1.LabelSelector{}
	}
	required, preferred := []corev1.PodAffinityTerm{term}, []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}
	return []*corev1.Affinity{
		{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}},
		{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}},
		{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}},
		{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}},
	}[r.IntN(4)]
}
