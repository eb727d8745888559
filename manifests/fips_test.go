// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// everything renders each workload of the chart.
func everything(t *testing.T, v values) map[string]corev1.PodTemplateSpec {
	t.Helper()
	v["view.page.enabled"] = true
	text, err := renderIn(t, cluster(t, appsv1.Deployment{}), v) // with a cluster there is the Job that withdraws
	if err != nil {
		t.Fatal(err)
	}
	templates := podTemplates(t, text)
	for name := range components() {
		if _, ok := templates[name]; !ok {
			t.Fatalf("there is no %s", name)
		}
	}
	return templates
}

// requireFIPS requires that each container of each workload runs an image of the FIPS flavour in a
// mode of Go's FIPS module: "" is neither.
func requireFIPS(t *testing.T, templates map[string]corev1.PodTemplateSpec, mode string) {
	t.Helper()
	for name, p := range templates {
		for _, c := range p.Spec.Containers {
			if got := strings.HasSuffix(c.Image, "-fips"); got != (mode != "") {
				t.Errorf("%s runs %s", name, c.Image)
			}
			var debug []string
			for _, e := range c.Env {
				if e.Name == "GODEBUG" {
					debug = append(debug, e.Value)
				}
			}
			if got := strings.Join(debug, " "); got != mode {
				t.Errorf("%s has the GODEBUG %q, want %q", name, got, mode)
			}
		}
	}
}

func TestEveryContainerRunsWithTheCryptographyThatTheValuesSay(t *testing.T) {
	for name, tt := range map[string]struct {
		value any
		mode  string
	}{
		"off": {"off", ""}, "on": {"on", "fips140=on"}, "only": {"only", "fips140=only"},
		"off without quotes": {false, ""}, "on without quotes": {true, "fips140=on"},
		"values of an earlier version": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireFIPS(t, everything(t, values{"fips": tt.value}), tt.mode)
		})
	}
}

// A tag of one component's own does not lead out of the FIPS images, and a digest is what it is.
func TestAnOwnTagIsOfTheFIPSImagesToo(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	templates := everything(t, values{"fips": "on", "scheduler.image.tag": "v8", "webhook.image.digest": digest})
	for name, want := range map[string]string{"deviceshare-scheduler": "deviceshare/scheduler:v8-fips", "deviceshare-webhook": "deviceshare/webhook@" + digest} {
		if got := templates[name].Spec.Containers[0].Image; got != want {
			t.Errorf("%s runs %s, want %s", name, got, want)
		}
	}
}

// The last of two variables of a name would count, or neither could be applied.
func TestAnotherGODEBUGDoesNotSilentlyTurnFIPSOff(t *testing.T) {
	mine := []any{map[string]any{"name": "GODEBUG", "value": "fips140=off"}}
	for _, workload := range []string{"scheduler", "devicePlugin", "keeper", "webhook", "view.page"} {
		v := values{"view.page.enabled": true, workload + ".extraEnv": mine}
		if _, err := template(t, v); err != nil {
			t.Errorf("%s, without FIPS: %v", workload, err)
		}
		v["fips"] = "only"
		if _, err := template(t, v); err == nil || !strings.Contains(err.Error(), "fips: extraEnv sets GODEBUG") {
			t.Errorf("%s: %v", workload, err)
		}
	}
}
