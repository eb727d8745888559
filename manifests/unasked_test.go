// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/utils/ptr"
)

const visible = "NVIDIA_VISIBLE_DEVICES"

// guardedCluster is what the chart puts between pods and devices that they do not ask for.
type guardedCluster struct {
	policy compiledPolicy
	hook   admissionv1.MutatingWebhook
	calls  cel.ConditionEvaluator // when the webhook is called
}

// unasked renders the chart with a policy and some exemptions.
func unasked(t *testing.T, name string) guardedCluster {
	t.Helper()
	objects := decode(t, render(t, values{
		"unaskedDevices.policy": name, "unaskedDevices.exemptNamespaces": []any{"monitoring"},
		"unaskedDevices.exemptNamespaceLabels": map[string]any{"team": "infra", "gpus": "free"},
		"unaskedDevices.exemptServiceAccounts": []any{"team/dcgm"},
		"unaskedDevices.askedBy":               []any{"nvidia.com/gpu", "nvidia.com/mig-*"},
	}))
	var out guardedCluster
	for _, p := range all[*admissionv1.ValidatingAdmissionPolicy](objects) {
		if p.Name == "deviceshare-unasked" {
			out.policy = compile(t, p)
		}
	}
	for _, m := range all[*admissionv1.MutatingWebhookConfiguration](objects) {
		if m.Name == "deviceshare-unasked" {
			out.hook, out.calls = m.Webhooks[0], webhookConditions(t, m.Webhooks[0].MatchConditions)
		}
	}
	if out.policy.validations == nil || out.hook.Name == "" {
		t.Fatalf("policy %s of the chart makes no policy or no webhook", name)
	}
	return out
}

func plain(name string, env ...corev1.EnvVar) corev1.Container {
	return corev1.Container{Name: name, Env: env}
}

func says(value string) corev1.EnvVar { return corev1.EnvVar{Name: visible, Value: value} }

func asking(c corev1.Container, name, amount string) corev1.Container {
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(amount)}
	c.Resources.Requests = c.Resources.Limits
	return c
}

func privileged(c corev1.Container) corev1.Container {
	c.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	return c
}

func mounting(c corev1.Container, where string) corev1.Container {
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: where})
	return c
}

func hostPath(name, where string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: where}}}
}

// teamPod is a pod of namespace team.
func teamPod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "team"},
		Spec: corev1.PodSpec{ServiceAccountName: "default", Containers: containers}}
}

func change(p *corev1.Pod, with func(*corev1.Pod)) *corev1.Pod {
	with(p)
	return p
}

func creation(p *corev1.Pod) question {
	return question{operation: admission.Create, pod: p, groups: []string{"system:authenticated"}}
}

func TestAPodThatWouldGetDevicesUnaskedIsRefusedByTheFieldsName(t *testing.T) {
	u := unasked(t, "deny")
	volumes := func(paths ...string) *corev1.Pod {
		return change(teamPod(plain("main")), func(p *corev1.Pod) {
			for i, where := range paths {
				p.Spec.Volumes = append(p.Spec.Volumes, hostPath(fmt.Sprintf("v%d", i), where))
			}
		})
	}
	annotated := func(key string, c corev1.Container) *corev1.Pod {
		return change(teamPod(c), func(p *corev1.Pod) { p.Annotations = map[string]string{key: "nvidia.com/gpu=all"} })
	}
	from := corev1.EnvVar{Name: visible, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	claims := plain("main")
	claims.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	share := asking(plain("main"), "volcano.sh/vgpu-number", "1")
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string // how the message begins; "" for none
	}{
		"a plain pod":                                  {teamPod(plain("main")), ""},
		"every device by the variable":                 {teamPod(plain("main", says("all"))), "spec.containers[main]: env NVIDIA_VISIBLE_DEVICES names devices"},
		"one device by its index":                      {teamPod(plain("main", says("0"))), "spec.containers[main]: env"},
		"one device by its UUID":                       {teamPod(plain("main", says("GPU-1a2b"))), "spec.containers[main]: env"},
		"every device, in an init container":           {change(teamPod(plain("main")), func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{plain("first", says("all"))} }), "spec.initContainers[first]: env"},
		"the variable from elsewhere":                  {teamPod(plain("main", from)), "spec.containers[main]: env"},
		"the variable in several containers":           {teamPod(plain("a", says("all")), plain("b"), plain("c", says("1"))), "spec.containers[a], spec.containers[c]: env"},
		"the variable twice, the last one is harmless": {teamPod(plain("main", says("all"), says("void"))), "spec.containers[main]: env"},
		"the variable of another variable":             {teamPod(plain("main", says("$(OTHER)"))), "spec.containers[main]: env"},
		"no device by the variable":                    {teamPod(plain("a", says("void")), plain("b", says("none")), plain("c", says(""))), ""},
		"capabilities alone":                           {teamPod(plain("main", corev1.EnvVar{Name: "NVIDIA_DRIVER_CAPABILITIES", Value: "all"})), ""},
		"the variable beside a share":                  {teamPod(share, plain("side", says("all"))), "spec.containers[side]: env"},
		"the variable in a container with a share":     {teamPod(asking(plain("main", says("all")), "volcano.sh/vgpu-number", "1")), "spec.containers[main]: env"},

		"a mount that lists devices":             {teamPod(mounting(plain("main"), "/var/run/nvidia-container-devices/all")), "spec.containers[main]: volumeMounts"},
		"the same by a detour":                   {teamPod(mounting(plain("main"), "/var//run/./x/../nvidia-container-devices//0")), "spec.containers[main]: volumeMounts"},
		"a CDI annotation":                       {annotated("cdi.k8s.io/any", plain("main")), "metadata.annotations[cdi.k8s.io/any]"},
		"a CDI annotation of the GPU operator":   {annotated("nvidia.cdi.k8s.io/gpu", plain("main")), "metadata.annotations[nvidia.cdi.k8s.io/gpu]"},
		"a CDI annotation beside a share":        {annotated("cdi.k8s.io/any", share), "metadata.annotations[cdi.k8s.io/any]"},
		"an annotation that looks a bit like it": {annotated("mycdi.k8s.io/any", plain("main")), ""},

		"a privileged container":                   {teamPod(privileged(plain("main"))), "spec.containers[main]: securityContext.privileged"},
		"a privileged container with a share":      {teamPod(privileged(share)), ""},
		"a privileged container beside a share":    {teamPod(share, privileged(plain("side"))), ""},
		"a privileged container, memory only":      {teamPod(privileged(asking(plain("main"), "volcano.sh/vgpu-memory", "10"))), ""},
		"a privileged container, nvidia.com/gpu":   {teamPod(privileged(asking(plain("main"), "nvidia.com/gpu", "1"))), ""},
		"a privileged container, a partition":      {teamPod(privileged(asking(plain("main"), "nvidia.com/mig-1g.5gb", "1"))), ""},
		"a privileged container, a claim":          {teamPod(privileged(claims)), ""},
		"a privileged container, none of a device": {teamPod(privileged(asking(plain("main"), "volcano.sh/vgpu-number", "0"))), "spec.containers[main]: securityContext.privileged"},
		"a privileged container, a network card":   {teamPod(privileged(asking(plain("main"), "nvidia.com/hostdev", "1"))), "spec.containers[main]: securityContext.privileged"},
		"a container that says it is not":          {teamPod(change(teamPod(privileged(plain("main"))), func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.Privileged = ptr.To(false) }).Spec.Containers[0]), ""},

		"the host's root":                   {volumes("/"), "spec.volumes[v0].hostPath"},
		"the host's devices":                {volumes("/tmp", "/dev", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap1"), "spec.volumes[v1, v2, v3, v4].hostPath"},
		"devices by other names":            {volumes("/dev/dri", "/dev/dri/card0", "/dev/char/195:0"), "spec.volumes[v0, v1, v2].hostPath"},
		"devices by detours":                {volumes("//dev", "/dev/", "/./dev/./nvidia0", "/dev//dri/"), "spec.volumes[v0, v1, v2, v3].hostPath"},
		"a list of devices from the host":   {volumes("/var/run/nvidia-container-devices"), "spec.volumes[v0].hostPath"},
		"other paths of the host":           {volumes("/dev/shm", "/dev/infiniband", "/devices", "/var/dev/nvidia", "/dev/null", "/dev/drive", "/home"), ""},
		"the host's devices with a share":   {change(volumes("/dev"), func(p *corev1.Pod) { p.Spec.Containers[0] = share }), ""},
		"an exempt account":                 {change(teamPod(privileged(plain("main", says("all")))), func(p *corev1.Pod) { p.Spec.ServiceAccountName = "dcgm" }), ""},
		"that account of another namespace": {change(teamPod(privileged(plain("main"))), func(p *corev1.Pod) { p.Namespace, p.Spec.ServiceAccountName = "other", "dcgm" }), "spec.containers[main]: securityContext.privileged"},
	} {
		t.Run(name, func(t *testing.T) {
			got := u.policy.refusals(t, creation(c.pod))
			if (c.want == "") != (len(got) == 0) || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
				t.Errorf("the policy says %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhatAKubeletShowsOfItsFilesIsNotRefused(t *testing.T) {
	u := unasked(t, "deny")
	q := creation(teamPod(privileged(plain("main"))))
	q.groups = []string{"system:nodes", "system:authenticated"}
	if got := u.policy.refusals(t, q); len(got) > 0 {
		t.Errorf("the mirror of a static pod: %q", got)
	}
	q.groups = nil
	if got := u.policy.refusals(t, q); len(got) != 1 {
		t.Errorf("somebody of no group: %q", got)
	}
}

// A pod may have been made before the policy. Its ordinary updates must work, or nothing could
// end it.
func TestOnlyWhatAnUpdateAddsIsRefused(t *testing.T) {
	u := unasked(t, "deny")
	old := change(teamPod(privileged(plain("main", says("all")))), func(p *corev1.Pod) {
		p.Annotations = map[string]string{"cdi.k8s.io/old": "a", "mine": "1"}
		p.Spec.Volumes = []corev1.Volume{hostPath("v", "/dev")}
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(privileged(plain("debug-0")))}}
	})
	with := func(e func(*corev1.Pod)) *corev1.Pod { return change(old.DeepCopy(), e) }
	debug := func(c corev1.Container) *corev1.Pod {
		return with(func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)})
		})
	}
	for name, c := range map[string]struct {
		subresource string
		pod         *corev1.Pod
		want        string
	}{
		"nothing":                               {"", old, ""},
		"another annotation":                    {"", with(func(p *corev1.Pod) { p.Annotations["mine"] = "2" }), ""},
		"an annotation that goes":               {"", with(func(p *corev1.Pod) { delete(p.Annotations, "cdi.k8s.io/old") }), ""},
		"a CDI annotation":                      {"", with(func(p *corev1.Pod) { p.Annotations["cdi.k8s.io/new"] = "b" }), "metadata.annotations[cdi.k8s.io/new]"},
		"a CDI annotation with another value":   {"status", with(func(p *corev1.Pod) { p.Annotations["cdi.k8s.io/old"] = "b" }), "metadata.annotations[cdi.k8s.io/old]"},
		"a container for debugging":             {"ephemeralcontainers", debug(plain("debug-1")), ""},
		"one that names devices":                {"ephemeralcontainers", debug(plain("debug-1", says("all"))), "spec.ephemeralContainers[debug-1]: env"},
		"one that is privileged":                {"ephemeralcontainers", debug(privileged(plain("debug-1"))), "spec.ephemeralContainers[debug-1]: securityContext.privileged"},
		"one with a mount that lists devices":   {"ephemeralcontainers", debug(mounting(plain("debug-1"), "/var/run/nvidia-container-devices/all")), "spec.ephemeralContainers[debug-1]: volumeMounts"},
		"a privileged one in a pod that asks":   {"ephemeralcontainers", change(debug(privileged(plain("debug-1"))), func(p *corev1.Pod) { p.Spec.Containers[0] = asking(plain("main"), "volcano.sh/vgpu-number", "1") }), ""},
		"one that names devices, in such a pod": {"ephemeralcontainers", change(debug(plain("debug-1", says("all"))), func(p *corev1.Pod) { p.Spec.Containers[0] = asking(plain("main"), "volcano.sh/vgpu-number", "1") }), "spec.ephemeralContainers[debug-1]: env"},
	} {
		t.Run(name, func(t *testing.T) {
			got := u.policy.refusals(t, question{operation: admission.Update, subresource: c.subresource, pod: c.pod, before: old, groups: []string{"a"}})
			if (c.want == "") != (len(got) == 0) || c.want != "" && !strings.HasPrefix(got[0], c.want) {
				t.Errorf("the policy says %q, want %q", got, c.want)
			}
		})
	}
}

func TestPolicyVoidRefusesOnlyWhatTheWebhookHasNotVoided(t *testing.T) {
	u := unasked(t, "void")
	opens := change(teamPod(privileged(mounting(plain("main"), "/var/run/nvidia-container-devices/all"))), func(p *corev1.Pod) {
		p.Spec.Volumes, p.Annotations = []corev1.Volume{hostPath("v", "/dev")}, map[string]string{"cdi.k8s.io/a": "b"}
	})
	if got := u.policy.refusals(t, creation(opens)); len(got) > 0 {
		t.Errorf("what cannot be voided: %q", got)
	}
	got := u.policy.refusals(t, creation(teamPod(plain("main", says("all")))))
	if len(got) != 1 || !strings.Contains(got[0], "as the webhook does where it is there") {
		t.Errorf("a variable that the webhook has not seen: %q", got)
	}
	rules := u.policy.Spec.MatchConstraints.ResourceRules
	if last := rules[len(rules)-1].Resources; !slices.Equal(last, []string{"pods/ephemeralcontainers"}) {
		t.Errorf("it looks at updates of %q", last)
	}
}

func TestWhichNamespacesAreExempt(t *testing.T) {
	for _, name := range []string{"void", "deny"} {
		u := unasked(t, name)
		for what, s := range map[string]*metav1.LabelSelector{"policy": u.policy.Spec.MatchConstraints.NamespaceSelector, "webhook": u.hook.NamespaceSelector} {
			selector, err := metav1.LabelSelectorAsSelector(s)
			if err != nil {
				t.Fatal(err)
			}
			for namespace, c := range map[string]struct {
				labels labels.Set
				want   bool
			}{
				"team": {nil, true}, "default": {labels.Set{"team": "research"}, true}, "gpu-operator": {nil, true}, // another list was given
				"monitoring": {nil, false}, "kube-system": {nil, false}, "kube-public": {nil, false}, "kube-node-lease": {nil, false},
				"deviceshare-system": {nil, false}, "a": {labels.Set{"team": "infra"}, false}, "b": {labels.Set{"gpus": "free", "team": "x"}, false},
			} {
				set := labels.Merge(labels.Set{corev1.LabelMetadataName: namespace}, c.labels)
				if got := selector.Matches(set); got != c.want {
					t.Errorf("%s of %s looks at namespace %s: %v", what, name, namespace, got)
				}
			}
		}
	}
}

// The webhook is called for nearly every pod of the cluster: it must not be able to stop one.
func TestTheWebhookForAllPodsFailsOpenAndFast(t *testing.T) {
	u := unasked(t, "deny")
	h := u.hook
	if *h.FailurePolicy != admissionv1.Ignore || *h.TimeoutSeconds > 2 || *h.SideEffects != admissionv1.SideEffectClassNone ||
		*h.ReinvocationPolicy != admissionv1.IfNeededReinvocationPolicy {
		t.Errorf("%+v", h)
	}
	mirror := change(teamPod(plain("main")), func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
	exempt := change(teamPod(plain("main")), func(p *corev1.Pod) { p.Spec.ServiceAccountName = "dcgm" })
	debug := func(env ...corev1.EnvVar) question {
		p := teamPod(plain("main", says("all")))
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(plain("debug", env...))}}
		return question{operation: admission.Update, subresource: "ephemeralcontainers", pod: p, before: p}
	}
	for name, c := range map[string]struct {
		q    question
		want bool
	}{
		"a plain pod":                       {creation(teamPod(plain("main"))), true},
		"a pod that names devices":          {creation(teamPod(plain("main", says("void")), plain("side", says("all")))), true},
		"a pod that says void everywhere":   {creation(teamPod(plain("main", says("void")), plain("side", says("none")))), false},
		"an init container says nothing":    {creation(change(teamPod(plain("main", says("void"))), func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{plain("i")} })), true},
		"a mirror pod":                      {creation(mirror), false},
		"a pod of an exempt account":        {creation(exempt), false},
		"a container for debugging":         {debug(), true},
		"a container for debugging, voided": {debug(says("void")), false},
	} {
		if got := isTrueOfAll(t, u.calls, c.q); got != c.want {
			t.Errorf("%s: it is called: %v, want %v", name, got, c.want)
		}
	}
}

func TestPolicyVoidNeedsTheWebhookAndDenyDoesNot(t *testing.T) {
	if _, err := template(t, values{"unaskedDevices.policy": "void", "webhook.enabled": false}); err == nil || !strings.Contains(err.Error(), "use deny") {
		t.Errorf("void without the webhook: %v", err)
	}
	objects := decode(t, render(t, values{"unaskedDevices.policy": "deny", "webhook.enabled": false}))
	if hooks := all[*admissionv1.MutatingWebhookConfiguration](objects); len(hooks) > 0 {
		t.Errorf("webhooks that nobody serves: %v", hooks)
	}
	if u := all[*admissionv1.ValidatingAdmissionPolicy](objects); !slices.ContainsFunc(u, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == "deviceshare-unasked" }) {
		t.Error("no policy")
	}
	for _, o := range decode(t, render(t, nil)) {
		if o.(metav1.Object).GetName() == "deviceshare-unasked" {
			t.Errorf("by default there is a %T", o)
		}
	}
}

// An expression that becomes too expensive fails, and would refuse the pod.
func TestAHugePodIsWithinTheCostLimitOfThePolicy(t *testing.T) {
	u := unasked(t, "deny")
	p := teamPod()
	for i := range 200 {
		c := plain(fmt.Sprintf("c%d", i))
		for j := range 200 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", j), Value: "x"})
		}
		p.Spec.Containers = append(p.Spec.Containers, asking(mounting(c, "/a"), "example.com/a", "1"))
		p.Spec.Volumes = append(p.Spec.Volumes, hostPath(fmt.Sprintf("v%d", i), strings.Repeat("/a", 100)))
	}
	if got := u.policy.refusals(t, creation(p)); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if !isTrueOfAll(t, u.calls, creation(p)) {
		t.Error("the webhook is not called")
	}
}
