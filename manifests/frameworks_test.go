// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"deviceshare/config"
	"deviceshare/e2e/laboratory/frameworks"
	"deviceshare/plugins/admission"
)

// podSpecs finds every pod specification in a decoded object, whatever its kind.
func podSpecs(value any) []map[string]any {
	var found []map[string]any
	switch v := value.(type) {
	case map[string]any:
		if _, ok := v["containers"].([]any); ok {
			return []map[string]any{v}
		}
		for _, inner := range v {
			found = append(found, podSpecs(inner)...)
		}
	case []any:
		for _, inner := range v {
			found = append(found, podSpecs(inner)...)
		}
	}
	return found
}

func TestManifestsOfFrameworksAskForWhatTheRulesAllow(t *testing.T) {
	settings := admission.NewSettings(config.DefaultDevice(), []string{"volcano"})
	files, err := filepath.Glob("frameworks/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d manifests, %v", len(files), err)
	}
	for _, file := range files {
		objects, err := frameworks.Read([]byte(read(t, file)))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			for _, spec := range podSpecs(o.Object) {
				var pod corev1.Pod
				if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(spec, &pod.Spec, true); err != nil {
					t.Errorf("%s: %v", file, err)
				}
				// An operator of a gang names the scheduler where the manifest does not.
				pod.Spec.SchedulerName = cmp.Or(pod.Spec.SchedulerName, "volcano")
				if verdict := admission.Review(&pod, settings); verdict.Refused() || len(verdict.Warnings) > 0 {
					text, _ := yaml.Marshal(spec)
					t.Errorf("%s: %s %q\n%s", file, verdict.Message(), verdict.Warnings, text)
				}
			}
		}
	}
}
