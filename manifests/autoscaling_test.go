// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"deviceshare/plugins/deviceshare/demand"
)

// Whoever has the scheduler's token may bind pods: it must not make any that do something.
func TestTheSchedulerMakesPodsThatAskForNodesAndNoOthers(t *testing.T) {
	var policy compiledPolicy
	for _, p := range all[*admissionv1.ValidatingAdmissionPolicy](decode(t, render(t, values{"autoscaling.enabled": true}))) {
		if p.Name == "deviceshare-autoscaling" {
			policy = compile(t, p)
		}
	}
	if policy.ValidatingAdmissionPolicy == nil {
		t.Fatal("there is no policy")
	}
	wish := demand.Wish{Type: "big", Slots: 80, Resource: "volcano.sh/vgpu-number", Selector: map[string]string{"pool": "gpu"}}
	asks := func(change func(*corev1.Pod)) question {
		p := wish.Pod("deviceshare-system")
		if change != nil {
			change(p)
		}
		return question{operation: "CREATE", pod: p, user: "system:serviceaccount:deviceshare-system:deviceshare-scheduler"}
	}
	if got := policy.refusals(t, asks(nil)); len(got) > 0 {
		t.Errorf("a pod that asks for a node is refused: %q", got)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"a scheduler serves it":     func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" },
		"it names its node":         func(p *corev1.Pod) { p.Spec.NodeName = "n1" },
		"it has an image":           func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox" },
		"its image would be pulled": func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways },
		"it has another container": func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "more", Image: "busybox"})
		},
		"it has an init container": func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.Containers },
		"it mounts the host":       func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v"}} },
		"it is in the host's network": func(p *corev1.Pod) {
			p.Spec.HostNetwork = true
		},
		"it runs as another account": func(p *corev1.Pod) { p.Spec.ServiceAccountName = "deviceshare-device-plugin" },
		"it is privileged": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		},
	} {
		if got := policy.refusals(t, asks(change)); len(got) == 0 {
			t.Errorf("it may make a pod where %s", name)
		}
	}
	other := asks(func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" })
	other.user = "somebody"
	if got := policy.refusals(t, other); len(got) > 0 {
		t.Errorf("pods of others are refused: %q", got)
	}
}
