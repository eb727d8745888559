// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/config"
	"deviceshare/plugins/admission"
	"deviceshare/sharing/wire"
)

// plain is a pod to which there is nothing to say.
func plain(amounts ...string) *corev1.Pod {
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
	const number, memory, cores = wire.ResourceNumber, wire.ResourceMemory, wire.ResourceCores
	change := func(f func(p *corev1.Pod)) *corev1.Pod {
		p := plain(number, "1", memory, "4096", cores, "25")
		f(p)
		return p
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a share":        {plain(number, "1", memory, "4096", cores, "25"), false},
		"a whole device": {plain(number, "1"), false},
		"an amount that Kubernetes writes as 24k":    {plain(number, "2", memory, "24000"), false},
		"all the compute":                            {plain(number, "1", cores, "100"), false},
		"no number, which is to be added":            {plain(memory, "4096"), true},
		"a number of 0":                              {plain(number, "0"), true},
		"a negative number":                          {plain(number, "-1"), true},
		"more devices than nodes have":               {plain(number, "1001"), true},
		"more compute than a device has":             {plain(number, "1", cores, "101"), true},
		"more memory than devices have":              {plain(number, "1", memory, "1000001"), true},
		"negative memory":                            {plain(number, "1", memory, "-1"), true},
		"an amount beyond 64 bits":                   {plain(number, "1", memory, "1e30"), true},
		"half a device":                              {plain(number, "500m"), true},
		"a percentage":                               {plain(number, "1", wire.ResourcePercentage, "50"), true},
		"a resource of somebody else, maybe renamed": {plain(number, "1", "example.com/gpu", "1"), true},
		"somebody else's alone":                      {plain("example.com/gpu", "1"), true},
		"the default scheduler":                      {change(func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }), true},
		"a third scheduler":                          {change(func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }), true},
		"a node by name":                             {change(func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), true},
		"a mode":                                     {change(func(p *corev1.Pod) { p.Annotations[wire.UserMode] = "mig" }), true},
		"a placement":                                {change(func(p *corev1.Pod) { p.Annotations[wire.PodPlacement] = "{}" }), true},
		"an annotation of ours that does not exist":  {change(func(p *corev1.Pod) { p.Annotations["volcano.sh/vGPU-modes"] = "mig" }), true},
		"an annotation of HAMi":                      {change(func(p *corev1.Pod) { p.Annotations["nvidia.com/use-gpuuuid"] = "GPU-1" }), true},
		"an annotation as a label":                   {change(func(p *corev1.Pod) { p.Labels = map[string]string{wire.UserMode: "mig"} }), true},
		"a default of a LimitRange for a share": {change(func(p *corev1.Pod) {
			p.Annotations[admission.LimitRangeKey] = "LimitRanger plugin set: volcano.sh/vgpu-memory limit for container main"
		}), true},
		"a default of a LimitRange for the processor": {change(func(p *corev1.Pod) {
			p.Annotations[admission.LimitRangeKey] = "LimitRanger plugin set: cpu limit for container main"
		}), false},
		"what only a scheduler writes":                {change(func(p *corev1.Pod) { p.Annotations[wire.PodBindTime] = "1" }), true},
		"devices for NVIDIA's runtime":                {change(func(p *corev1.Pod) { p.Spec.Containers[1].Env[0].Name = admission.VisibleVariable }), true},
		"devices for NVIDIA's runtime in a container": {change(func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: admission.VisibleVariable}} }), true},
		"an init container without a number":          {change(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Resources: sized(cores, "5")}} }), true},
		"an init container that is right":             {change(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Resources: sized(number, "1")}} }), false},
		"a request without a limit":                   {change(func(p *corev1.Pod) { p.Spec.Containers[1].Resources.Limits = nil }), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := matches(t, inCluster(), c.pod); got != c.want {
				t.Errorf("matches: %v, want %v", got, c.want)
			}
		})
	}
}

// Whatever a pod looks like for which nobody is called: the webhook would have added nothing to it,
// and would have said nothing of it. The pods are plain ones with a few changes at random.
func TestOfPodsThatCauseNoCallThereIsNothingToSay(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 7))
	called := matcher(t, conditions(t, inCluster()))
	quiet := 0
	for range 4000 {
		pod := plain(wire.ResourceNumber, "1", wire.ResourceMemory, "4096")
		for range r.IntN(4) {
			disturb(r, pod)
		}
		if called(creationOf(pod)) {
			continue
		}
		quiet++
		s := admission.NewSettings(config.DefaultDevice(), []string{"volcano"})
		s.MemoryFactor, s.Count, s.Defaults.Memory, s.Defaults.Cores = 1+r.Int64N(16), 1+r.Int64N(3), r.Int64N(5000), 0
		if patch := admission.Complete(pod, s); len(patch) > 0 {
			t.Fatalf("nobody completes %+v\nwith %v", pod, patch)
		}
		if v := admission.Review(pod, s); v.Refused() || len(v.Warnings) > 0 {
			t.Fatalf("nobody says of %+v\n%s %q", pod, v.Message(), v.Warnings)
		}
	}
	if quiet < 500 || quiet > 3500 {
		t.Errorf("%d of 4,000 pods cause no call: the test tries little", quiet)
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
		c.Env = append(c.Env, corev1.EnvVar{Name: of(admission.VisibleVariable, "PATH"), Value: of("all", "void", "")})
	case 8:
		for range r.IntN(70) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "i", Resources: sized(wire.ResourceNumber, "1")})
			pod.Spec.Containers = append(pod.Spec.Containers, pod.Spec.InitContainers[0])
		}
	case 9:
		pod.Spec.SchedulerName, pod.Spec.NodeName = of("volcano", "volcano", "default-scheduler", "other", ""), of("", "", "n1")
	}
}
