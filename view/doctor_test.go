// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/config"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

const home = "deviceshare-system"

// program is a ready pod as the chart makes them, with one argument or none.
func program(namespace, name, part, image, owner string, args ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if part != "" {
		p.Labels = map[string]string{capture.PartOf: capture.Product, capture.NameLabel: "deviceshare-" + part}
	}
	kind, of, _ := strings.Cut(owner, " ")
	p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: of}}
	p.Spec = corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "main", Image: "registry.example:5000/deviceshare/" + image, Args: args}}}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	return p
}

func unready(p *corev1.Pod) *corev1.Pod {
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	return p
}

func registrationOf(namespace, service string, ca string) *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "deviceshare", Labels: map[string]string{capture.PartOf: capture.Product}},
		Webhooks: []admissionv1.MutatingWebhook{{Name: "mutate.deviceshare.volcano.sh", ClientConfig: admissionv1.WebhookClientConfig{
			CABundle: []byte(ca), Service: &admissionv1.ServiceReference{Namespace: namespace, Name: service},
		}}},
	}
}

// parts are the objects of an installation by what a test may replace; nil takes one away.
type parts map[string]any

func installed(t *testing.T, replaced parts) *capture.State {
	t.Helper()
	text := "nvidia:\n  resourceCountName: volcano.sh/vgpu-number\n"
	d, problems := config.LoadDevice([]byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	s := &capture.State{DeviceConfig: &text, Installation: &capture.Installation{
		Namespace: home, Probe: &capture.Probe{Completed: true},
		Rights: []capture.Right{{For: "status", Verb: "list", Group: "scheduling.volcano.sh", Resource: "queues", Allowed: true}},
	}}
	node := nodeOf(t, "node", 1)
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.31.2", ContainerRuntimeVersion: "containerd://2.1.0"}
	configure(t, node, d.Hash())
	whole := parts{
		"node":      node,
		"scheduler": program(home, "scheduler-a", "scheduler", "scheduler:v0.1.0", "ReplicaSet deviceshare-scheduler-6f9", "--scheduler-name=volcano"),
		"standby":   program(home, "scheduler-b", "scheduler", "scheduler:v0.1.0", "ReplicaSet deviceshare-scheduler-6f9", "--scheduler-name=volcano"),
		"webhook":   program(home, "webhook-a", "webhook", "webhook:v0.1.0", "ReplicaSet deviceshare-webhook-5c4", "--scheduler-name=volcano"),
		"plugin":    program(home, "plugin-a", "device-plugin", "device-plugin:v0.1.0", "DaemonSet deviceshare-device-plugin"),
		"keeper":    program(home, "keeper-a", "keeper", "device-plugin:v0.0.9", "DaemonSet deviceshare-keeper"),
		"hooks":     registrationOf(home, "deviceshare-webhook", "certificate"),
		"user":      program("team", "web", "", "nginx:latest", "ReplicaSet web-1"),
	}
	for name, part := range replaced {
		whole[name] = part
	}
	for _, part := range whole {
		if part != nil {
			s.Add(part)
		}
	}
	s.Sort()
	return s
}

func configure(t *testing.T, n *corev1.Node, hash string) {
	t.Helper()
	text, err := wire.EncodeConfig(wire.ConfigVersions{Device: hash})
	if err != nil {
		t.Fatal(err)
	}
	n.Annotations[wire.NodeConfig] = text
}

func TestNothingIsWrongWithAWholeInstallation(t *testing.T) {
	h := view.Read(installed(t, nil), factory.New()).Doctor("v0.1.0")
	if len(h.Problems) > 0 || len(h.Unknown) > 0 || h.Text(view.Paint{}) != "Nothing is wrong.\n" {
		t.Errorf("got %+v", h)
	}
}

func TestTheDoctorFindsWhatIsWrongAndSaysWhatMendsIt(t *testing.T) {
	aged := func(kubelet, runtime string) *corev1.Node {
		n := nodeOf(t, "node", 1)
		n.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: kubelet, ContainerRuntimeVersion: runtime}
		return n
	}
	otherwise := nodeOf(t, "node", 1)
	configure(t, otherwise, "0123456789abcdef")
	theirs := program("volcano-system", "volcano-scheduler-x", "", "vc-scheduler:v1.14.1", "ReplicaSet volcano-scheduler-77f")
	for name, c := range map[string]struct {
		replaced parts
		change   func(*capture.State)
		version  string
		on       string
		what, do string
	}{
		"programs of two versions": {replaced: parts{"webhook": program(home, "webhook-a", "webhook", "webhook:v0.2.0", "ReplicaSet deviceshare-webhook-5c4")},
			on: "versions", what: "v0.1.0 of device-plugin and scheduler, v0.2.0 of webhook", do: "rollout status"},
		"a command of another version": {version: "v0.3.0", on: "versions", what: "this program is v0.3.0, the cluster runs v0.1.0", do: "install kubectl-deviceshare v0.1.0"},
		"Volcano's scheduler under the same name": {replaced: parts{"theirs": theirs},
			on: "scheduler volcano", what: "home/deviceshare-scheduler, volcano-system/volcano-scheduler", do: "kubectl -n volcano-system scale deployment volcano-scheduler --replicas=0"},
		"a legacy device plugin": {replaced: parts{"theirs": program("kube-system", "legacy-x", "", "volcano-vgpu-device-plugin:v1.10", "DaemonSet volcano-device-plugin")},
			on: "node", what: "Volcano's own device plugin runs there", do: "kubectl -n kube-system delete daemonset volcano-device-plugin"},
		"no scheduler": {replaced: parts{"scheduler": nil, "standby": nil}, on: "scheduler", what: "no pod of it is there", do: "scale deployment deviceshare-scheduler --replicas=2"},
		"no webhook":   {replaced: parts{"webhook": nil}, on: "webhook", what: "no pod of it is there", do: "scale deployment deviceshare-webhook --replicas=2"},
		"a webhook that is not ready": {replaced: parts{"webhook": unready(program(home, "webhook-a", "webhook", "webhook:v0.1.0", "ReplicaSet x-1"))},
			on: "webhook", what: "none of its 1 pod is ready", do: "describe pods -l app.kubernetes.io/name=deviceshare-webhook"},
		"no device plugin": {replaced: parts{"plugin": nil}, on: "device-plugin", what: "nodes publish no devices", do: "get daemonset deviceshare-device-plugin"},
		"a device plugin that is not ready": {replaced: parts{"other": unready(program(home, "plugin-b", "device-plugin", "device-plugin:v0.1.0", "DaemonSet x"))},
			on: "node", what: "its device plugin, pod plugin-b, is not ready", do: "kubectl -n deviceshare-system logs plugin-b"},
		"no registration":                     {replaced: parts{"hooks": nil}, on: "webhook", what: "has no registration", do: "helm upgrade"},
		"a registration without certificates": {replaced: parts{"hooks": registrationOf(home, "deviceshare-webhook", "")}, on: "webhook mutate.deviceshare.volcano.sh", what: "no certificate to know it by", do: "create job --from=cronjob/deviceshare-webhook-ca"},
		"a registration of another namespace": {replaced: parts{"hooks": registrationOf("old", "deviceshare-webhook", "x")}, on: "webhook mutate", what: "calls old/deviceshare-webhook", do: "--install-namespace"},
		"a webhook that is not reached": {change: func(s *capture.State) {
			s.Installation.Probe = &capture.Probe{Error: `Internal error occurred: failed calling webhook "x": x509: certificate signed by unknown authority`}
		}, on: "webhook", what: "does not reach it: Internal error occurred: failed calling webhook \"x\": x509", do: "create job --from=cronjob/deviceshare-webhook-ca"},
		"a webhook that does not answer": {change: func(s *capture.State) { s.Installation.Probe = &capture.Probe{} },
			on: "webhook", what: "gets no scheduler", do: "rollout restart deployment deviceshare-webhook"},
		"a webhook that does not answer where a policy refuses what it has not completed": {change: func(s *capture.State) {
			s.Installation.Probe = &capture.Probe{Error: "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'deviceshare-requests' with binding 'deviceshare-requests' denied request: spec.schedulerName: says"}
		}, on: "webhook", what: "gets no scheduler", do: "rollout restart deployment deviceshare-webhook"},
		"a node with another configuration": {replaced: parts{"node": otherwise}, on: "node", what: "has device configuration 0123456789abcdef in force, the ConfigMap is ", do: "logs -l app.kubernetes.io/name=deviceshare-device-plugin"},
		"a right that is missing": {change: func(s *capture.State) { s.Installation.Rights[0].Allowed = false },
			on: "your rights", what: "you may not list queues.scheduling.volcano.sh, which status needs", do: "kubectl auth can-i list queues.scheduling.volcano.sh"},
		"an old kubelet":    {replaced: parts{"node": aged("v1.30.9", "cri-o://1.20.0")}, on: "node", what: "its kubelet is v1.30.9", do: "upgrade the node"},
		"an old containerd": {replaced: parts{"node": aged("v1.33.0", "containerd://1.6.36")}, on: "node", what: "containerd 1.6.36", do: "upgrade containerd"},
	} {
		t.Run(name, func(t *testing.T) {
			s := installed(t, c.replaced)
			if c.change != nil {
				c.change(s)
			}
			version := c.version
			if version == "" {
				version = "v0.1.0"
			}
			h := view.Read(s, factory.New()).Doctor(version)
			what := strings.ReplaceAll(c.what, "home/", home+"/")
			if len(h.Problems) != 1 || len(h.Unknown) > 0 {
				t.Fatalf("got %+v, want one problem", h)
			}
			if p := h.Problems[0]; !strings.HasPrefix(p.On, c.on) || !strings.Contains(p.What, what) || !strings.Contains(p.Do, c.do) {
				t.Errorf("got %+v, want on %q what %q do %q", p, c.on, what, c.do)
			}
			if text := h.Text(view.Paint{}); !strings.HasPrefix(text, "1 problem:\n  "+c.on) {
				t.Errorf("the text is\n%s", text)
			}
		})
	}
}

// What the doctor must not cry about.
func TestTheDoctorRaisesNoFalseAlarm(t *testing.T) {
	for name, replaced := range map[string]parts{
		"a scheduler of another name": {"theirs": program("volcano-system", "v", "", "vc-scheduler:v1.14.1", "ReplicaSet volcano-1", "--scheduler-name=batch")},
		"Volcano's other programs":    {"theirs": program("volcano-system", "v", "", "vc-webhook-manager:v1.14.1", "ReplicaSet volcano-1", "--scheduler-name=volcano")},
		"a scheduler by digest":       {"standby": program(home, "b", "scheduler", "scheduler@sha256:0123", "ReplicaSet deviceshare-scheduler-6f9", "--scheduler-name=volcano")},
		"a pod that has ended": {"theirs": func() *corev1.Pod {
			p := program("volcano-system", "v", "", "vc-scheduler:v1", "ReplicaSet volcano-1")
			p.Status.Phase = corev1.PodFailed
			return p
		}()},
		"runtimes of unknown kind": {"node": func() *corev1.Node {
			n := nodeOf(t, "node", 1)
			n.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "unknown", ContainerRuntimeVersion: "docker://20.1"}
			return n
		}()},
	} {
		if h := view.Read(installed(t, replaced), factory.New()).Doctor(view.Unreleased); len(h.Problems) > 0 {
			t.Errorf("%s: %+v", name, h.Problems)
		}
	}
}

// Where webhook.enabled is false there is no Deployment to scale or restart.
func TestTheDoctorDoesNotCureAWebhookThatIsNotToBeThere(t *testing.T) {
	for name, probe := range map[string]*capture.Probe{
		"pods come back as they were": {},
		"a policy refuses the pod":    {Error: "ValidatingAdmissionPolicy 'deviceshare-requests' with binding denied request"},
		"the pod is not tried":        nil,
	} {
		s := installed(t, parts{"webhook": nil, "hooks": nil})
		s.Installation.Probe = probe
		h := view.Read(s, factory.New()).Doctor("v0.1.0")
		if len(h.Problems) > 0 || len(h.Unknown) != 1 || !strings.Contains(h.Unknown[0], "webhook.enabled=false") {
			t.Errorf("%s: got %+v", name, h)
		}
	}
}

func TestTheDoctorSaysWhatItCouldNotLookAt(t *testing.T) {
	s := installed(t, parts{"hooks": nil})
	s.Forbidden, s.Installation.Probe = []string{"get mutatingwebhookconfigurations/deviceshare"}, nil
	h := view.Read(s, factory.New()).Doctor("v0.1.0")
	if text := h.Text(view.Paint{}); len(h.Problems) > 0 || len(h.Unknown) != 2 || !strings.Contains(text, "Not looked at:\n  whether the API server calls the webhook") {
		t.Errorf("got %+v\n%s", h, text)
	}
	s.Installation.Probe = &capture.Probe{Error: "exceeded quota"}
	if h := view.Read(s, factory.New()).Doctor("v0.1.0"); len(h.Problems) > 0 || !strings.Contains(fmt.Sprint(h.Unknown), "exceeded quota") {
		t.Errorf("got %+v", h)
	}
}
