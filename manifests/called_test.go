// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"deviceshare/config"
	webhook "deviceshare/plugins/admission"
	"deviceshare/sharing/wire"
)

func creationOf(pod *corev1.Pod) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, podKind(), pod.Namespace, pod.Name, podResource(), "", admission.Create, nil, false, nil)
}

func podKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Pod") }

func podResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
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

// asker is a pod that asks for one of a resource.
func asker(resource string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: oneOf(resource)}}}}
}

func TestOrdinaryUpdatesOfPodsCauseNoCall(t *testing.T) {
	long := strings.Repeat("x", 250<<10)
	placed := func(text string) map[string]string {
		return map[string]string{"volcano.sh/vgpu-placement": text, "volcano.sh/vgpu-node": "n", "other": "1"}
	}
	called := matcher(t, registered(t, values{"webhook.placementWriters": []any{"the-scheduler", "it's"}}).guard.MatchConditions)
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
		"a writer":                                {nil, placed("{}"), "the-scheduler", false},
		"a user with a quote":                     {nil, placed("{}"), "it's", false},
		"nobody":                                  {nil, placed("{}"), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := func(annotations map[string]string) *corev1.Pod {
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Annotations: annotations}}
			}
			attributes := admission.NewAttributesRecord(pod(c.after), pod(c.before), podKind(), "default", "p",
				podResource(), "", admission.Update, nil, false, &user.DefaultInfo{Name: c.user})
			if got := called(attributes); got != c.want {
				t.Errorf("matches: %v, want %v", got, c.want)
			}
		})
	}
}

func oneOf(name string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("1")}}
}

func TestOnlyPodsThatAskCauseACall(t *testing.T) {
	none := corev1.Container{Name: "plain"}
	asks := func(name string) corev1.Container { return corev1.Container{Name: "c", Resources: oneOf(name)} }
	called := matcher(t, registered(t, nil).newPods(t))
	tests := map[string]struct {
		spec        corev1.PodSpec
		annotations map[string]string
		want        bool
	}{
		"a plain pod":                    {corev1.PodSpec{Containers: []corev1.Container{none}}, nil, false},
		"a pod with others' devices":     {corev1.PodSpec{Containers: []corev1.Container{asks("nvidia.com/gpu")}}, nil, true}, // they may be ours by that name
		"a pod with huge pages":          {corev1.PodSpec{Containers: []corev1.Container{asks("hugepages-2Mi")}}, nil, false},
		"a pod without containers":       {corev1.PodSpec{Containers: []corev1.Container{}}, nil, false},
		"a limit on devices":             {corev1.PodSpec{Containers: []corev1.Container{asks("volcano.sh/vgpu-number")}}, nil, true},
		"a limit on memory":              {corev1.PodSpec{Containers: []corev1.Container{asks("volcano.sh/vgpu-memory")}}, nil, true},
		"a limit on cores":               {corev1.PodSpec{Containers: []corev1.Container{asks("volcano.sh/vgpu-cores")}}, nil, true},
		"a limit in percent":             {corev1.PodSpec{Containers: []corev1.Container{asks("volcano.sh/vgpu-memory-percentage")}}, nil, true},
		"the second container asks":      {corev1.PodSpec{Containers: []corev1.Container{none, asks("volcano.sh/vgpu-cores")}}, nil, true},
		"an init container asks":         {corev1.PodSpec{Containers: []corev1.Container{none}, InitContainers: []corev1.Container{none, asks("volcano.sh/vgpu-cores")}}, nil, true},
		"a request without a limit asks": {corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: oneOf("volcano.sh/vgpu-memory").Limits}}}}, nil, true},
		"a mirror pod that asks": {corev1.PodSpec{Containers: []corev1.Container{asks("volcano.sh/vgpu-number")}},
			map[string]string{corev1.MirrorPodAnnotationKey: "x"}, false},
		"a pod that asks for nothing and claims devices": {corev1.PodSpec{Containers: []corev1.Container{asks("example.com/hca")}},
			map[string]string{"volcano.sh/vgpu-placement": "{}"}, true},
		"a mirror pod that claims devices": {corev1.PodSpec{Containers: []corev1.Container{none}},
			map[string]string{"volcano.sh/vgpu-placement": "{}", corev1.MirrorPodAnnotationKey: "x"}, false},
		"an annotated pod that asks for nothing": {corev1.PodSpec{Containers: []corev1.Container{none}},
			map[string]string{"volcano.sh/vgpu-mode": "mig"}, false},
		"an annotated pod that asks": {corev1.PodSpec{Containers: []corev1.Container{asks("volcano.sh/vgpu-number")}},
			map[string]string{"volcano.sh/vgpu-mode": "mig"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Annotations: tt.annotations}, Spec: tt.spec}
			if got := called(creationOf(pod)); got != tt.want {
				t.Errorf("matches: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestResourcesMayHaveAnyName(t *testing.T) {
	called := matcher(t, registered(t, nil).newPods(t))
	for name, want := range map[string]bool{"example.com/gpu": true, "volcano.sh/vgpu-number": true, "cpu": false} {
		if got := called(creationOf(asker(name))); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestAHugePodIsStillWithinTheCostLimit(t *testing.T) {
	called := matcher(t, registered(t, nil).newPods(t))
	pod := &corev1.Pod{}
	for range 1000 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c", Resources: oneOf("hugepages-2Mi")})
	}
	if called(creationOf(pod)) {
		t.Error("a pod that does not ask matches")
	}
}

// rightPod is a pod to which there is nothing to say.
func rightPod(amounts ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Annotations: map[string]string{"volcano.sh/job-name": "j"}},
		Spec: corev1.PodSpec{SchedulerName: "volcano", Containers: []corev1.Container{
			{Name: "side", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m")}}},
			{Name: "main", Resources: sized(amounts...), Env: []corev1.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", Value: "0"}}},
		}},
	}
}

// sized has amounts as limits and as requests, as the API server has defaulted them. They are
// names and texts in turns.
func sized(amounts ...string) corev1.ResourceRequirements {
	list := corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")}
	for i := 0; i < len(amounts); i += 2 {
		list[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return corev1.ResourceRequirements{Limits: list, Requests: list}
}

func TestPodsThatArePlainlyRightCauseNoCall(t *testing.T) {
	called := matcher(t, registered(t, nil).newPods(t))
	const number, memory, cores = wire.ResourceNumber, wire.ResourceMemory, wire.ResourceCores
	change := func(f func(p *corev1.Pod)) *corev1.Pod {
		p := rightPod(number, "1", memory, "4096", cores, "25")
		f(p)
		return p
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a share":        {rightPod(number, "1", memory, "4096", cores, "25"), false},
		"a whole device": {rightPod(number, "1"), false},
		"an amount that Kubernetes writes as 24k":    {rightPod(number, "2", memory, "24000"), false},
		"all the compute":                            {rightPod(number, "1", cores, "100"), false},
		"no number, which is to be added":            {rightPod(memory, "4096"), true},
		"a number of 0":                              {rightPod(number, "0"), true},
		"a negative number":                          {rightPod(number, "-1"), true},
		"more devices than nodes have":               {rightPod(number, "1001"), true},
		"more compute than a device has":             {rightPod(number, "1", cores, "101"), true},
		"more memory than devices have":              {rightPod(number, "1", memory, "1000001"), true},
		"negative memory":                            {rightPod(number, "1", memory, "-1"), true},
		"an amount beyond 64 bits":                   {rightPod(number, "1", memory, "1e30"), true},
		"half a device":                              {rightPod(number, "500m"), true},
		"a percentage":                               {rightPod(number, "1", wire.ResourcePercentage, "50"), true},
		"a resource of somebody else, maybe renamed": {rightPod(number, "1", "example.com/gpu", "1"), true},
		"somebody else's alone":                      {rightPod("example.com/gpu", "1"), true},
		"the default scheduler":                      {change(func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }), true},
		"a third scheduler":                          {change(func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }), true},
		"a node by name":                             {change(func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), true},
		"a mode":                                     {change(func(p *corev1.Pod) { p.Annotations[wire.UserMode] = "mig" }), true},
		"a placement":                                {change(func(p *corev1.Pod) { p.Annotations[wire.PodPlacement] = "{}" }), true},
		"an annotation of ours that does not exist":  {change(func(p *corev1.Pod) { p.Annotations["volcano.sh/vGPU-modes"] = "mig" }), true},
		"an annotation of HAMi":                      {change(func(p *corev1.Pod) { p.Annotations["nvidia.com/use-gpuuuid"] = "GPU-1" }), true},
		"an annotation as a label":                   {change(func(p *corev1.Pod) { p.Labels = map[string]string{wire.UserMode: "mig"} }), true},
		"a default of a LimitRange for a share": {change(func(p *corev1.Pod) {
			p.Annotations[webhook.LimitRangeKey] = "LimitRanger plugin set: volcano.sh/vgpu-memory limit for container main"
		}), true},
		"a default of a LimitRange for the processor": {change(func(p *corev1.Pod) {
			p.Annotations[webhook.LimitRangeKey] = "LimitRanger plugin set: cpu limit for container main"
		}), false},
		"what only a scheduler writes":                {change(func(p *corev1.Pod) { p.Annotations[wire.PodBindTime] = "1" }), true},
		"devices for NVIDIA's runtime":                {change(func(p *corev1.Pod) { p.Spec.Containers[1].Env[0].Name = webhook.VisibleVariable }), true},
		"devices for NVIDIA's runtime in a container": {change(func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: webhook.VisibleVariable}} }), true},
		"an init container without a number":          {change(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Resources: sized(cores, "5")}} }), true},
		"an init container that is right":             {change(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Resources: sized(number, "1")}} }), false},
		"a request without a limit":                   {change(func(p *corev1.Pod) { p.Spec.Containers[1].Resources.Limits = nil }), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := called(creationOf(c.pod)); got != c.want {
				t.Errorf("matches: %v, want %v", got, c.want)
			}
		})
	}
}

// Whatever a pod looks like for which nobody is called: the webhook would have added nothing to it,
// and would have said nothing of it. The pods are plain ones with a few changes at random.
func TestOfPodsThatCauseNoCallThereIsNothingToSay(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 7))
	called := matcher(t, registered(t, nil).newPods(t))
	quiet := 0
	for range 4000 {
		pod := rightPod(wire.ResourceNumber, "1", wire.ResourceMemory, "4096")
		for range r.IntN(4) {
			disturb(r, pod)
		}
		if called(creationOf(pod)) {
			continue
		}
		quiet++
		s := webhook.NewSettings(config.DefaultDevice(), []string{"volcano"})
		s.Factor, s.Count, s.Defaults.Memory, s.Defaults.Cores = 1+r.Int64N(16), 1+r.Int64N(3), r.Int64N(5000), 0
		if patch := webhook.Complete(pod, s); len(patch) > 0 {
			t.Fatalf("nobody completes %+v\nwith %v", pod, patch)
		}
		if v := webhook.Review(pod, s); v.Refused() || len(v.Warnings) > 0 {
			t.Fatalf("nobody says of %+v\n%s %q", pod, v.Message(), v.Warnings)
		}
	}
	if quiet < 500 || quiet > 3500 {
		t.Errorf("%d of 4,000 pods cause no call: the test tries little", quiet)
	}
}

// docs/install.md says so: with a larger unit an amount can be wrong of which the webhook does not
// hear, and the scheduler, which reads by the same rules, refuses it.
func TestWithAUnitAbove16MiBAWrongAmountCausesNoCall(t *testing.T) {
	called := matcher(t, registered(t, nil).newPods(t))
	pod := rightPod(wire.ResourceNumber, "1", wire.ResourceMemory, "1000000")
	s := webhook.NewSettings(config.DefaultDevice(), []string{"volcano"})
	for factor, right := range map[int64]bool{16: true, 17: false} {
		s.Factor = factor
		if v := webhook.Review(pod, s); v.Refused() == right {
			t.Errorf("with a factor of %d: %s", factor, v.Message())
		}
	}
	if called(creationOf(pod)) {
		t.Error("the webhook hears of it: say so in docs/install.md")
	}
}

// disturb changes something of a pod, mostly for the worse.
func disturb(r *rand.Rand, pod *corev1.Pod) {
	of := func(list ...string) string { return list[r.IntN(len(list))] }
	name := corev1.ResourceName(of(wire.ResourceNumber, wire.ResourceMemory, wire.ResourceCores, wire.ResourcePercentage, "example.com/hca", "hugepages-2Mi",
		"volcano.sh/vgpu-mem", "volcano.sh/gpu-memory", "nvidia.com/gpumem"))
	amount := resource.MustParse(of("0", "1", "2", "7", "100", "101", "1000", "24000", "1000000", "17000000", "1e30", "-1", "1500m", "1Gi"))
	c := &pod.Spec.Containers[r.IntN(len(pod.Spec.Containers))]
	switch r.IntN(10) {
	case 0:
		c.Resources.Limits = c.Resources.Limits.DeepCopy()
		delete(c.Resources.Limits, name)
	case 1, 2:
		c.Resources.Limits = c.Resources.Limits.DeepCopy()
		c.Resources.Limits[name], c.Resources.Requests = amount, c.Resources.Limits
	case 3:
		c.Resources.Requests = c.Resources.Requests.DeepCopy()
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[name] = amount
	case 4:
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "i", Resources: sized(string(name), amount.String())})
	case 5:
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", len(pod.Spec.Containers)), Resources: sized(string(name), amount.String())})
	case 6:
		keys := append(append(wire.UserKeys(), wire.WrittenKeys()...), "scheduling.k8s.io/group-name", "volcano.sh/queue-name", "volcano.sh/vgpu",
			"volcano.sh/VGPU-mode", "volcano.sh/vgpu-memory", "volcano.sh/gpu-memory", "nvidia.com/use-gpuuuid", "nvidia.com/vgpu-mode", "hami.io/gpu-scheduler-policy")
		if key, value := of(keys...), of("", "mig", "even", "x,,", "{}", "binpack"); r.IntN(4) > 0 {
			pod.Annotations[key] = value
		} else {
			pod.Labels = map[string]string{key: value}
		}
	case 7:
		c.Env = append(c.Env, corev1.EnvVar{Name: of(webhook.VisibleVariable, "PATH"), Value: of("all", "void", "")})
	case 8:
		for range r.IntN(70) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "i", Resources: sized(wire.ResourceNumber, "1")})
			pod.Spec.Containers = append(pod.Spec.Containers, pod.Spec.InitContainers[0])
		}
	case 9:
		pod.Spec.SchedulerName, pod.Spec.NodeName = of("volcano", "volcano", "default-scheduler", "other", ""), of("", "", "n1")
	}
}
