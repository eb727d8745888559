// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/plugins/podspec"
	"deviceshare/sharing"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

func list(amounts map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, v := range amounts {
		out[corev1.ResourceName(name)] = resource.MustParse(v)
	}
	return out
}

// pod has a container of every kind.
func pod() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{
			SchedulerName: "volcano",
			InitContainers: []corev1.Container{
				{Name: "init", Resources: corev1.ResourceRequirements{Limits: list(map[string]string{wire.ResourceNumber: "1", "cpu": "1"})}},
				{Name: "side", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list(map[string]string{wire.ResourceMemory: "500"})}},
			},
			Containers: []corev1.Container{
				{Name: "none"},
				{Name: "main", Resources: corev1.ResourceRequirements{
					Limits:   list(map[string]string{wire.ResourceNumber: "2", wire.ResourceMemory: "1k", "memory": "1Gi"}),
					Requests: list(map[string]string{wire.ResourceNumber: "1", "cpu": "1"}),
				}},
			},
		},
	}
}

func TestReadKeepsTheOrderOfTheSpecAndPrefersLimits(t *testing.T) {
	want := request.Pod{
		Namespace: "ns", UID: "u", SchedulerName: "volcano", Annotations: map[string]string{"a": "b"},
		Containers: []request.Container{
			{Name: "init", Kind: sharing.Init, Resources: map[string]int64{wire.ResourceNumber: 1}},
			{Name: "side", Kind: sharing.Sidecar, Resources: map[string]int64{wire.ResourceMemory: 500}},
			{Name: "none", Kind: sharing.App, Resources: map[string]int64{}},
			{Name: "main", Kind: sharing.App, Resources: map[string]int64{wire.ResourceNumber: 2, wire.ResourceMemory: 1000}},
		},
	}
	if d := cmp.Diff(want, podspec.Read(pod())); d != "" {
		t.Error(d)
	}
}

func TestContainerRefsNameEveryContainer(t *testing.T) {
	want := []wire.ContainerRef{
		{Name: "init", Kind: sharing.Init, Asks: true, Count: 1}, {Name: "side", Kind: sharing.Sidecar, Asks: true},
		{Name: "none", Kind: sharing.App}, {Name: "main", Kind: sharing.App, Asks: true, Count: 2},
	}
	if d := cmp.Diff(want, podspec.ContainerRefs(pod(), request.DefaultNames())); d != "" {
		t.Error(d)
	}
}

func TestAsksAgreesWithTheNeutralDescription(t *testing.T) {
	for name, c := range map[string]struct {
		limits, requests map[string]string
		want             bool
	}{
		"nothing":                      {},
		"cpu only":                     {limits: map[string]string{"cpu": "1"}},
		"another vendor":               {limits: map[string]string{"example.com/gpu": "1"}},
		"zero is none":                 {limits: map[string]string{wire.ResourceNumber: "0"}},
		"number":                       {limits: map[string]string{wire.ResourceNumber: "1"}, want: true},
		"memory only":                  {limits: map[string]string{wire.ResourceMemory: "1"}, want: true},
		"cores only":                   {limits: map[string]string{wire.ResourceCores: "1"}, want: true},
		"percentage only":              {limits: map[string]string{wire.ResourcePercentage: "1"}, want: true},
		"a request without its limit":  {requests: map[string]string{wire.ResourceNumber: "1"}, want: true},
		"zero as limit, one requested": {limits: map[string]string{wire.ResourceNumber: "0"}, requests: map[string]string{wire.ResourceNumber: "1"}},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: list(c.limits), Requests: list(c.requests),
		}}}}}
		neutral := podspec.Read(p)
		if got := podspec.Asks(p, request.DefaultNames()); got != c.want || got != request.Asks(&neutral, request.DefaultNames()) {
			t.Errorf("%s: %t, want %t; the neutral description says %t", name, got, c.want, request.Asks(&neutral, request.DefaultNames()))
		}
	}
}

func TestAsksExtendedSeesEveryVendorAndNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		limits map[string]string
		want   bool
	}{
		"nothing": {}, "cpu and memory": {limits: map[string]string{"cpu": "1", "memory": "1Gi"}},
		"none of ours": {limits: map[string]string{wire.ResourceNumber: "0"}},
		"another":      {limits: map[string]string{"example.com/gpu": "1"}, want: true},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: list(c.limits)}}}}}
		if got := podspec.AsksExtended(p); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAsksAllocatesNothing(t *testing.T) {
	p, names := pod(), request.DefaultNames()
	if n := testing.AllocsPerRun(100, func() { podspec.Asks(p, names) }); n != 0 {
		t.Errorf("%v allocations: the scheduler asks it of every pod", n)
	}
}
