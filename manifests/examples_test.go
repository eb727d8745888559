// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"deviceshare/config"
	"deviceshare/plugins/admission"
)

// podTemplate is one pod of an example.
type podTemplate struct {
	name string
	pod  corev1.Pod
}

func templates(t *testing.T, objects []client.Object) []podTemplate {
	t.Helper()
	var out []podTemplate
	for _, o := range objects {
		switch v := o.(type) {
		case *corev1.Pod:
			out = append(out, podTemplate{v.Name, *v})
		case *appsv1.Deployment:
			out = append(out, podTemplate{v.Name, corev1.Pod{ObjectMeta: v.Spec.Template.ObjectMeta, Spec: v.Spec.Template.Spec}})
		case *batchv1.Job:
			out = append(out, podTemplate{v.Name, corev1.Pod{ObjectMeta: v.Spec.Template.ObjectMeta, Spec: v.Spec.Template.Spec}})
		}
	}
	return out
}

// examples returns the pods of every example by its folder.
func examples(t *testing.T) map[string][]podTemplate {
	t.Helper()
	out := map[string][]podTemplate{}
	folders, err := os.ReadDir("examples")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if !f.IsDir() {
			continue
		}
		found, err := filepath.Glob("examples/" + f.Name() + "/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			out[f.Name()] = append(out[f.Name()], templates(t, decode(t, read(t, path)))...)
		}
		if len(out[f.Name()]) == 0 {
			t.Errorf("example %s has no pod", f.Name())
		}
	}
	return out
}

// incomplete are the examples that show what the webhook adds.
func incomplete(example string) bool { return example == "deployment" }

func TestExamplesAskForWhatTheRulesAllow(t *testing.T) {
	settings := admission.NewSettings(config.DefaultDevice(), []string{"volcano"})
	for example, pods := range examples(t) {
		for _, p := range pods {
			t.Run(example+"/"+p.name, func(t *testing.T) {
				added := admission.Complete(&p.pod, settings)
				if (len(added) > 0) != incomplete(example) {
					t.Errorf("the webhook adds %v", added)
				}
				verdict := admission.Review(&p.pod, settings)
				if !incomplete(example) && (verdict.Refused() || len(verdict.Warnings) > 0) {
					t.Errorf("%s %q", verdict.Message(), verdict.Warnings)
				}
			})
		}
	}
}

func TestExamplesRunInTheSandbox(t *testing.T) {
	for example, pods := range examples(t) {
		for _, p := range pods {
			for _, c := range append(p.pod.Spec.InitContainers, p.pod.Spec.Containers...) {
				if c.Image != "deviceshare/cudaclient:sandbox" || c.ImagePullPolicy != corev1.PullNever {
					t.Errorf("%s: container %s: image %s, pull policy %s", example, c.Name, c.Image, c.ImagePullPolicy)
				}
				if len(c.Command) < 2 || c.Command[0] != "/usr/bin/cudaclient" {
					t.Errorf("%s: container %s: command %q", example, c.Name, c.Command)
				}
			}
		}
	}
}

func TestEveryExampleIsExplainedAndListed(t *testing.T) {
	index := read(t, "examples/README.md")
	for example := range examples(t) {
		if text := read(t, "examples/"+example+"/README.md"); len(strings.Fields(text)) < 20 {
			t.Errorf("%s: its README says next to nothing", example)
		}
		if !strings.Contains(index, "["+example+"]("+example+")") {
			t.Errorf("%s is not in examples/README.md", example)
		}
	}
	for line := range strings.Lines(index) {
		if _, rest, ok := strings.Cut(line, "]("); ok {
			name, _, _ := strings.Cut(rest, ")")
			if _, err := os.Stat("examples/" + name); err != nil {
				t.Errorf("examples/README.md lists %s: %v", name, err)
			}
		}
	}
}
