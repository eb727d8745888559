// SPDX-License-Identifier: Apache-2.0

package corepod_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
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
	want := podspec.Pod{
		Namespace: "ns", UID: "u", SchedulerName: "volcano", Annotations: map[string]string{"a": "b"},
		Containers: []podspec.Container{
			{Name: "init", Kind: sharing.Init, Resources: map[string]int64{wire.ResourceNumber: 1}},
			{Name: "side", Kind: sharing.Sidecar, Resources: map[string]int64{wire.ResourceMemory: 500}},
			{Name: "none", Kind: sharing.App, Resources: map[string]int64{}},
			{Name: "main", Kind: sharing.App, Resources: map[string]int64{wire.ResourceNumber: 2, wire.ResourceMemory: 1000}},
		},
	}
	if d := cmp.Diff(want, corepod.Read(pod())); d != "" {
		t.Error(d)
	}
}

func TestContainerRefsNameEveryContainer(t *testing.T) {
	want := []wire.ContainerRef{
		{Name: "init", Kind: sharing.Init, Asks: true, Count: 1}, {Name: "side", Kind: sharing.Sidecar, Asks: true},
		{Name: "none", Kind: sharing.App}, {Name: "main", Kind: sharing.App, Asks: true, Count: 2},
	}
	if d := cmp.Diff(want, corepod.Refs(pod(), podspec.DefaultNames())); d != "" {
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
		neutral := corepod.Read(p)
		if got := corepod.Asks(p, podspec.DefaultNames()); got != c.want || got != podspec.Asks(&neutral, podspec.DefaultNames()) {
			t.Errorf("%s: %t, want %t; the neutral description says %t", name, got, c.want, podspec.Asks(&neutral, podspec.DefaultNames()))
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
		if got := corepod.AsksExtended(p); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAsksAllocatesNothing(t *testing.T) {
	p, names := pod(), podspec.DefaultNames()
	if n := testing.AllocsPerRun(100, func() { corepod.Asks(p, names) }); n != 0 {
		t.Errorf("%v allocations: the scheduler asks it of every pod", n)
	}
}

func TestTheAmountOfAResourceIsItsLimitThenItsRequest(t *testing.T) {
	const gpu = wire.ResourceNumber
	for name, c := range map[string]struct {
		limits, requests map[string]string
		want             int64
		named            bool
	}{
		"nothing":                        {},
		"another resource":               {limits: map[string]string{"cpu": "1"}},
		"a limit":                        {limits: map[string]string{gpu: "2"}, want: 2, named: true},
		"a request without a limit":      {requests: map[string]string{gpu: "3"}, want: 3, named: true},
		"both, and the limit counts":     {limits: map[string]string{gpu: "2"}, requests: map[string]string{gpu: "3"}, want: 2, named: true},
		"a limit of zero counts as well": {limits: map[string]string{gpu: "0"}, requests: map[string]string{gpu: "3"}, named: true},
		"zero is named":                  {limits: map[string]string{gpu: "0"}, named: true},
		"a suffix":                       {limits: map[string]string{gpu: "1k"}, want: 1000, named: true},
		"a fraction is rounded up":       {limits: map[string]string{gpu: "100m"}, want: 1, named: true},
		"a negative fraction as well":    {limits: map[string]string{gpu: "-100m"}, want: -1, named: true},
		"a negative amount":              {limits: map[string]string{gpu: "-2"}, want: -2, named: true},
		"an amount beyond 64 bits":       {limits: map[string]string{gpu: "1e40"}, want: math.MaxInt64, named: true},
		"one below them":                 {limits: map[string]string{gpu: "-1e40"}, want: math.MinInt64, named: true},
		"the largest amount":             {limits: map[string]string{gpu: "9223372036854775807"}, want: math.MaxInt64, named: true},
	} {
		t.Run(name, func(t *testing.T) {
			container := corev1.Container{Resources: corev1.ResourceRequirements{Limits: list(c.limits), Requests: list(c.requests)}}
			got, named := corepod.Container{Container: &container}.Amount(gpu)
			if got != c.want || named != c.named {
				t.Errorf("%d, %t; want %d, %t", got, named, c.want, c.named)
			}
			neutral := corepod.Read(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}})
			if n, ok := neutral.Containers[0].Amount(gpu); n != got || ok != named {
				t.Errorf("the neutral container says %d, %t", n, ok)
			}
			if n, ok := (corepod.Container{Container: &container}).Amount(""); n != 0 || ok {
				t.Errorf("a resource that does not exist is %d, %t", n, ok)
			}
		})
	}
}

func TestEphemeralContainersAreNotRead(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Resources: corev1.ResourceRequirements{Limits: list(map[string]string{wire.ResourceNumber: "1"})},
		},
	}}}}
	if corepod.Asks(p, podspec.DefaultNames()) || corepod.AsksExtended(p) {
		t.Error("an ephemeral container asks: Kubernetes gives it no resources")
	}
	if refs, neutral := corepod.Refs(p, podspec.DefaultNames()), corepod.Read(p); len(refs)+len(neutral.Containers) > 0 {
		t.Errorf("read as %+v, %+v", refs, neutral.Containers)
	}
}

func TestOnlyTheRestartPolicyAlwaysMakesASidecar(t *testing.T) {
	policies := map[corev1.ContainerRestartPolicy]sharing.ContainerKind{
		"": sharing.Init, corev1.ContainerRestartPolicyAlways: sharing.Sidecar,
		corev1.ContainerRestartPolicyNever: sharing.Init, corev1.ContainerRestartPolicyOnFailure: sharing.Init,
	}
	for policy, want := range policies {
		p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i", RestartPolicy: &policy}}}}
		if got := corepod.Read(p).Containers[0].Kind; got != want {
			t.Errorf("restartPolicy %q makes it %v, want %v", policy, got, want)
		}
	}
}
