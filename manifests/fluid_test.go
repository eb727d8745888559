// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/laboratory/frameworks"
)

// What docs/unasked.md says of Fluid: its FUSE pods are refused by deny where they are not exempt,
// and so are its sidecars, except in pods that ask for a device.
func TestDenyRefusesFluidsPodsThatAskForNothing(t *testing.T) {
	fuse := frameworks.FluidFuse(types.NamespacedName{Namespace: "team", Name: "images"})
	withSidecar := func(main corev1.Container) *corev1.Pod {
		pod := teamPod(main)
		pod.Spec.Containers = slices.Concat(fuse.Spec.Containers, pod.Spec.Containers)
		pod.Spec.Volumes = fuse.Spec.Volumes
		return pod
	}
	account := func(p *corev1.Pod, name string) *corev1.Pod {
		return change(p.DeepCopy(), func(p *corev1.Pod) { p.Spec.ServiceAccountName = name })
	}
	const refused = "spec.containers[alluxio-fuse]: securityContext.privileged"
	for says, c := range map[string]struct {
		policy string
		pod    *corev1.Pod
		want   string // how the message begins; "" for none
	}{
		"a FUSE pod":                           {"deny", account(fuse, "default"), refused},
		"a FUSE pod with an exempt account":    {"deny", account(fuse, "dcgm"), ""},
		"a sidecar":                            {"deny", withSidecar(plain("main")), refused},
		"a sidecar of an exempt account's pod": {"deny", account(withSidecar(plain("main")), "dcgm"), ""},
		"a sidecar beside a share":             {"deny", withSidecar(asking(plain("main"), "volcano.sh/vgpu-number", "1")), ""},
		"a FUSE pod, void":                     {"void", account(fuse, "default"), ""},
		"a sidecar, void":                      {"void", withSidecar(plain("main")), ""},
	} {
		got := unasked(t, c.policy).policy.refusals(t, creation(c.pod))
		if (c.want == "") != (len(got) == 0) || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: refused with %q, want %q", says, got, c.want)
		}
	}
}
