// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// matches evaluates the conditions for a creation.
func matches(t *testing.T, r Registration, pod *corev1.Pod) bool {
	t.Helper()
	return match(t, conditions(t, r), creationOf(pod))
}

// conditions are those of the first webhook. The second one has the same.
func conditions(t *testing.T, r Registration) []admissionv1.MatchCondition {
	t.Helper()
	m, v := applied(t, fake.NewFakeClient(), r, "CA")
	if !equality.Semantic.DeepEqual(m.MatchConditions, v.MatchConditions) {
		t.Errorf("pods are completed if\n%+v\nand judged if\n%+v", m.MatchConditions, v.MatchConditions)
	}
	return m.MatchConditions
}

func creationOf(pod *corev1.Pod) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, podKind(), pod.Namespace, pod.Name, podResource(), "", admission.Create, nil, false, nil)
}

// asker is a pod that asks for one of a resource.
func asker(resource string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: limits(resource)}}}}
}

func podKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Pod") }

func podResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// match evaluates conditions once.
func match(t *testing.T, conditions []admissionv1.MatchCondition, attributes admission.Attributes) bool {
	t.Helper()
	return matcher(t, conditions)(attributes)
}

// matcher evaluates conditions with the API server's own code. That a condition fails is a mistake
// here.
func matcher(t *testing.T, conditions []admissionv1.MatchCondition) func(admission.Attributes) bool {
	t.Helper()
	var expressions []cel.ExpressionAccessor
	for _, c := range conditions {
		expressions = append(expressions, &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression})
	}
	// An API server compiles new expressions with what the minor version before it has too, and the
	// oldest one that the chart accepts is 1.31.
	env := environment.MustBaseEnvSet(version.MajorMinor(1, 30), true)
	compiled := cel.NewConditionCompiler(env).CompileCondition(expressions,
		cel.OptionalVariableDeclarations{HasAuthorizer: true, StrictCost: true}, environment.NewExpressions)
	fail := admissionv1.Fail // so that an error is not taken for a miss
	m := matchconditions.NewMatcher(compiled, &fail, "webhook", "admit", "test")
	return func(attributes admission.Attributes) bool {
		t.Helper()
		result := m.Match(t.Context(), &admission.VersionedAttributes{Attributes: attributes, VersionedKind: podKind(),
			VersionedObject: attributes.GetObject(), VersionedOldObject: attributes.GetOldObject()}, nil, nil)
		if result.Error != nil {
			t.Fatalf("evaluate %s: %v", result.FailedConditionName, result.Error)
		}
		return result.Matches
	}
}

func TestOrdinaryUpdatesOfPodsCauseNoCall(t *testing.T) {
	long := strings.Repeat("x", 250<<10)
	placed := func(text string) map[string]string {
		return map[string]string{"volcano.sh/vgpu-placement": text, "volcano.sh/vgpu-node": "n", "other": "1"}
	}
	for name, c := range map[string]struct {
		before, after map[string]string
		user          string
		want          bool
	}{
		"a pod without annotations":               {nil, nil, "somebody", false},
		"a pod that never had devices":            {map[string]string{"a": "1"}, map[string]string{"a": "2"}, "somebody", false},
		"the first annotation of a pod":           {nil, map[string]string{"a": "2"}, "somebody", false},
		"another annotation of a pod with shares": {placed("{}"), map[string]string{"volcano.sh/vgpu-placement": "{}", "volcano.sh/vgpu-node": "n"}, "somebody", false},
		"a long placement that stays":             {placed(long), placed(long), "somebody", false},
		"a long placement that changes":           {placed(long), placed(long + "y"), "somebody", true},
		"a placement that changes":                {placed("{}"), placed("{ }"), "somebody", true},
		"a placement that is removed":             {placed("{}"), nil, "somebody", true},
		"a placement that is added, and empty":    {nil, map[string]string{"volcano.sh/vgpu-ids-new": ""}, "somebody", true},
		"the scheduler":                           {nil, placed("{}"), "the-scheduler", false},
		"a user with quotes":                      {nil, placed("{}"), `it's "quoted"`, false},
		"nobody":                                  {nil, placed("{}"), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := func(annotations map[string]string) *corev1.Pod {
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Annotations: annotations}}
			}
			attributes := admission.NewAttributesRecord(pod(c.after), pod(c.before), podKind(), "default", "p",
				podResource(), "", admission.Update, nil, false, &user.DefaultInfo{Name: c.user})
			if got := match(t, guardOf(t, inCluster()).MatchConditions, attributes); got != c.want {
				t.Errorf("matches: %v, want %v", got, c.want)
			}
		})
	}
}

func limits(name string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("1")}}
}

func TestOnlyPodsThatAskCauseACall(t *testing.T) {
	plain := corev1.Container{Name: "plain"}
	asking := func(name string) corev1.Container { return corev1.Container{Name: "c", Resources: limits(name)} }
	tests := map[string]struct {
		spec        corev1.PodSpec
		annotations map[string]string
		want        bool
	}{
		"a plain pod":                    {corev1.PodSpec{Containers: []corev1.Container{plain}}, nil, false},
		"a pod with others' devices":     {corev1.PodSpec{Containers: []corev1.Container{asking("nvidia.com/gpu")}}, nil, true}, // they may be ours by that name
		"a pod with huge pages":          {corev1.PodSpec{Containers: []corev1.Container{asking("hugepages-2Mi")}}, nil, false},
		"a pod without containers":       {corev1.PodSpec{Containers: []corev1.Container{}}, nil, false},
		"a limit on devices":             {corev1.PodSpec{Containers: []corev1.Container{asking("volcano.sh/vgpu-number")}}, nil, true},
		"a limit on memory":              {corev1.PodSpec{Containers: []corev1.Container{asking("volcano.sh/vgpu-memory")}}, nil, true},
		"a limit on cores":               {corev1.PodSpec{Containers: []corev1.Container{asking("volcano.sh/vgpu-cores")}}, nil, true},
		"a limit in percent":             {corev1.PodSpec{Containers: []corev1.Container{asking("volcano.sh/vgpu-memory-percentage")}}, nil, true},
		"the second container asks":      {corev1.PodSpec{Containers: []corev1.Container{plain, asking("volcano.sh/vgpu-cores")}}, nil, true},
		"an init container asks":         {corev1.PodSpec{Containers: []corev1.Container{plain}, InitContainers: []corev1.Container{plain, asking("volcano.sh/vgpu-cores")}}, nil, true},
		"a request without a limit asks": {corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: limits("volcano.sh/vgpu-memory").Limits}}}}, nil, true},
		"a mirror pod that asks": {corev1.PodSpec{Containers: []corev1.Container{asking("volcano.sh/vgpu-number")}},
			map[string]string{corev1.MirrorPodAnnotationKey: "x"}, false},
		"a pod that asks for nothing and claims devices": {corev1.PodSpec{Containers: []corev1.Container{asking("example.com/hca")}},
			map[string]string{"volcano.sh/vgpu-placement": "{}"}, true},
		"a mirror pod that claims devices": {corev1.PodSpec{Containers: []corev1.Container{plain}},
			map[string]string{"volcano.sh/vgpu-placement": "{}", corev1.MirrorPodAnnotationKey: "x"}, false},
		"an annotated pod that asks for nothing": {corev1.PodSpec{Containers: []corev1.Container{plain}},
			map[string]string{"volcano.sh/vgpu-mode": "mig"}, false},
		"an annotated pod that asks": {corev1.PodSpec{Containers: []corev1.Container{asking("volcano.sh/vgpu-number")}},
			map[string]string{"volcano.sh/vgpu-mode": "mig"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Annotations: tt.annotations}, Spec: tt.spec}
			if got := matches(t, inCluster(), pod); got != tt.want {
				t.Errorf("matches: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestResourcesMayHaveAnyName(t *testing.T) {
	for name, want := range map[string]bool{"example.com/gpu": true, "volcano.sh/vgpu-number": true, "cpu": false} {
		if got := matches(t, inCluster(), asker(name)); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestAHugePodIsStillWithinTheCostLimit(t *testing.T) {
	pod := &corev1.Pod{}
	for range 1000 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c", Resources: limits("hugepages-2Mi")})
	}
	if matches(t, inCluster(), pod) {
		t.Error("a pod that does not ask matches")
	}
}
