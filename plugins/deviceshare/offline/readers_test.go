// SPDX-License-Identifier: Apache-2.0

package offline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"deviceshare/plugins/admission"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// randomAsk is a pod of which each container may ask for something, mostly without mistakes.
func randomAsk(r *rand.Rand, n podspec.Names) *corev1.Pod {
	one := func(from ...string) string { return from[r.IntN(len(from))] }
	container := func(name string) corev1.Container {
		c := corev1.Container{Name: name}
		list := corev1.ResourceList{"cpu": resource.MustParse("1")}
		if r.IntN(8) > 0 {
			list[corev1.ResourceName(n.Number)] = resource.MustParse(one("1", "2", "3", "0"))
		}
		if r.IntN(2) == 0 {
			list[corev1.ResourceName(n.Memory)] = resource.MustParse(one("0", "7", "1000", "4k", "1e9", "-1"))
		} else if r.IntN(3) == 0 {
			list[corev1.ResourceName(n.Percentage)] = resource.MustParse(one("1", "50", "100", "101"))
		}
		if r.IntN(2) == 0 {
			list[corev1.ResourceName(n.Cores)] = resource.MustParse(one("0", "30", "100", "150", "500m"))
		}
		switch r.IntN(3) {
		case 0:
			c.Resources.Limits = list
		case 1:
			c.Resources.Requests = list
		default:
			c.Resources.Limits, c.Resources.Requests = list, list
		}
		if r.IntN(3) == 0 {
			c.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To(r.Int64N(3))}
		}
		return c
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "volcano", Containers: []corev1.Container{container("main")}}}
	pod.Namespace, pod.UID, pod.Annotations = "team", "uid", map[string]string{}
	if r.IntN(3) == 0 {
		pod.Spec.Containers = append(pod.Spec.Containers, container("second"))
	}
	if r.IntN(3) == 0 {
		init := container("init")
		if r.IntN(2) == 0 {
			init.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = []corev1.Container{init}
	}
	if r.IntN(3) == 0 {
		pod.Annotations[wire.UserSplit] = wire.SplitEven
	}
	if r.IntN(4) == 0 {
		pod.Annotations[one(wire.UserMode, wire.UserPolicy, wire.UserNUMA, "volcano.sh/vgpu-modes")] = one("mig", "binpack", "single", "nonsense")
	}
	return pod
}

// says reports whether a container names a resource.
func says(pod *corev1.Pod, container, name string) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		_, limited := c.Resources.Limits[corev1.ResourceName(name)]
		_, requested := c.Resources.Requests[corev1.ResourceName(name)]
		if c.Name == container && (limited || requested) {
			return true
		}
	}
	return false
}

// Whoever reads a pod reads the same: the webhook refuses what the scheduler cannot serve, in the
// same words, and the node checks containers against what the scheduler gave them shares for. The
// scheduler reads with the settings' ReadRequest, with which views and the mix of pods read too.
func TestEveryReaderReadsTheSameRequest(t *testing.T) {
	r := rand.New(rand.NewPCG(28, 4))
	good, wrong, filled := 0, 0, 0
	for range 6000 {
		names := podspec.DefaultNames()
		if r.IntN(3) == 0 {
			names = podspec.Names{Number: "a.b/gpu", Memory: "a.b/mem", Cores: "a.b/cores", Percentage: "a.b/percent"}
		}
		rules := request.Rules{Names: names, Factor: 1 + r.Int64N(2000)}
		if r.IntN(2) == 0 {
			rules.Defaults = request.Defaults{Memory: r.Int64N(50), Cores: sharing.Percent(r.IntN(100))}
		}
		pod := randomAsk(r, names)
		if !corepod.Asks(pod, names) {
			continue
		}
		scheduler := nodes.Settings{Names: names, Factor: rules.Factor, Defaults: rules.Defaults}
		asked, mistakes := scheduler.ReadRequest(pod)
		verdict := admission.Review(pod, admission.Settings{Rules: rules, Schedulers: []string{"volcano"}, Count: 1})
		if got, want := fmt.Sprint(verdict.Mistakes), fmt.Sprint(mistakes); got != want {
			t.Fatalf("%+v\nthe webhook says   %s\nthe scheduler says %s", pod, got, want)
		}
		neutral := corepod.Read(pod)
		node, wrongThere := request.Rules{Names: names, Factor: rules.Factor}.ReadContainers(&neutral)
		if len(mistakes) > 0 {
			wrong++
			inAmounts := slices.ContainsFunc(mistakes, func(m request.Mistake) bool { return strings.HasPrefix(m.Path, "spec.") })
			if inAmounts != (len(wrongThere) > 0) {
				t.Fatalf("%+v\nthe node says      %v\nthe scheduler says %v", pod, wrongThere, mistakes)
			}
			continue
		}
		good++
		if len(node) != len(asked.Requests) {
			t.Fatalf("%+v\nthe node reads      %+v\nthe scheduler reads %+v", pod, node, asked.Requests)
		}
		for i, want := range asked.Requests {
			// What the pod does not say comes from defaults, which may have changed since: the node
			// allows any.
			if !says(pod, want.Container, names.Memory) && !says(pod, want.Container, names.Percentage) {
				filled, want.Memory = filled+1, sharing.WholeMemory()
			}
			if !says(pod, want.Container, names.Cores) {
				want.Cores = 0
			}
			if node[i] != want {
				t.Fatalf("%+v\nthe node reads      %+v\nthe scheduler reads %+v", pod, node[i], want)
			}
		}
	}
	if good < 500 || wrong < 500 || filled < 200 {
		t.Errorf("%d pods without mistakes, %d with some, %d containers with defaults: the test tries little", good, wrong, filled)
	}
}
