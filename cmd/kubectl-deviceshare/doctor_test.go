// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"deviceshare/sharing"
	"deviceshare/view/capture"
)

// manifest are the objects that the plain manifest installs, and a ready pod of each template, as
// controllers make them.
func manifest(t *testing.T) []runtime.Object {
	t.Helper()
	f, err := os.Open("../../manifests/install/deviceshare.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []runtime.Object
	pod := func(owner, namespace string, template *corev1.PodTemplateSpec) {
		p := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		p.Namespace, p.Name = namespace, "pod-of-"+p.Labels[capture.NameLabel]
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: p.Labels[capture.NameLabel] + "-5f7"}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		out = append(out, p)
	}
	for in := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var raw json.RawMessage
		if err := in.Decode(&raw); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 || string(raw) == "null" { // nothing but comments
			continue
		}
		var kind metav1.TypeMeta
		decode := func(into any) {
			if err := json.Unmarshal(raw, into); err != nil {
				t.Fatal(err)
			}
		}
		decode(&kind)
		switch kind.Kind {
		case "Deployment":
			var d appsv1.Deployment
			decode(&d)
			pod("ReplicaSet", d.Namespace, &d.Spec.Template)
		case "DaemonSet":
			var d appsv1.DaemonSet
			decode(&d)
			pod("DaemonSet", d.Namespace, &d.Spec.Template)
		case "MutatingWebhookConfiguration":
			var m admissionv1.MutatingWebhookConfiguration
			decode(&m)
			for i := range m.Webhooks {
				m.Webhooks[i].ClientConfig.CABundle = []byte("as the webhook fills in")
			}
			out = append(out, &m)
		case "ValidatingWebhookConfiguration":
			var m admissionv1.ValidatingWebhookConfiguration
			decode(&m)
			for i := range m.Webhooks {
				m.Webhooks[i].ClientConfig.CABundle = []byte("as the webhook fills in")
			}
			out = append(out, &m)
		}
	}
}

// answering makes the API server grant rights and admit pods, as a webhook completes them.
func answering(c *fake.Clientset, granted func(*authorizationv1.ResourceAttributes) bool, admit func(*corev1.Pod) error) {
	c.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		review.Status.Allowed = granted(review.Spec.ResourceAttributes)
		return true, review, nil
	})
	c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		return true, p, admit(p)
	})
}

// diagnosed runs the doctor on a cluster and returns what it prints.
func diagnosed(t *testing.T, core *fake.Clientset) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o := &options{streams: genericiooptions.IOStreams{Out: &out}, flags: genericclioptions.NewConfigFlags(true), output: "table",
		installNamespace: "deviceshare-system", configNamespace: "kube-system"}
	_, batch := clients()
	s := &capture.State{Installation: &capture.Installation{Namespace: o.installNamespace}}
	if err := errors.Join(readInto(t.Context(), core, batch, o.configNamespace, s), o.readInstallation(t.Context(), core, s)); err != nil {
		t.Fatal(err)
	}
	err := o.writeDiagnosis(s)
	return out.String(), err
}

func TestTheDoctorKnowsWhatTheManifestInstalls(t *testing.T) {
	all := func(*authorizationv1.ResourceAttributes) bool { return true }
	completed := func(p *corev1.Pod) error { p.Spec.SchedulerName = "volcano"; return nil }
	for name, c := range map[string]struct {
		without string
		granted func(*authorizationv1.ResourceAttributes) bool
		admit   func(*corev1.Pod) error
		want    string
	}{
		"all is there":                {granted: all, admit: completed, want: "Nothing is wrong."},
		"the webhook is gone":         {without: "webhook", granted: all, admit: completed, want: "webhook: no pod of it is there"},
		"the scheduler is gone":       {without: "scheduler", granted: all, admit: completed, want: "scheduler: no pod of it is there"},
		"no device plugin":            {without: "device-plugin", granted: all, admit: completed, want: "device-plugin: no pod of it is there"},
		"pods are not completed":      {granted: all, admit: func(*corev1.Pod) error { return nil }, want: "webhook: it does not answer"},
		"the webhook is not reached":  {granted: all, admit: func(*corev1.Pod) error { return errors.New("failed calling webhook: refused") }, want: "the API server does not reach it"},
		"a right of top is not given": {granted: func(a *authorizationv1.ResourceAttributes) bool { return a.Subresource != "token" }, admit: completed, want: "you may not create serviceaccounts/token/deviceshare-top, which top needs"},
		"no pods may be created":      {granted: func(a *authorizationv1.ResourceAttributes) bool { return a.Resource != "pods" || a.Verb != "create" }, admit: completed, want: "Nothing is wrong.\n\nNot looked at:\n  whether the webhook answers"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{node("node-1", device("node-1", 0, "A30", sharing.HAMiCore))}
			for _, object := range manifest(t) {
				if p, isPod := object.(*corev1.Pod); isPod && c.without != "" && p.Labels[capture.NameLabel] == "deviceshare-"+c.without {
					continue
				}
				objects = append(objects, object)
			}
			core := fake.NewClientset(objects...)
			answering(core, c.granted, c.admit)
			text, err := diagnosed(t, core)
			if !strings.Contains(text, c.want) || (err == nil) != strings.Contains(c.want, "Nothing is wrong") {
				t.Errorf("got %v\n%s\nwant %q", err, text, c.want)
			}
			if err != nil && !strings.HasPrefix(text, "1 problem:") {
				t.Errorf("more than one problem:\n%s", text)
			}
			for _, a := range core.Actions() {
				if create, ok := a.(clienttesting.CreateActionImpl); ok && a.GetResource().Resource == "pods" && len(create.CreateOptions.DryRun) == 0 {
					t.Error("a pod was created in earnest")
				}
			}
		})
	}
}

func TestTheDoctorReadsNoCapture(t *testing.T) {
	if _, err := run(t, "doctor", "--from", file(t, small())); err == nil || !strings.Contains(err.Error(), "leave out --from") {
		t.Errorf("got %v", err)
	}
}
