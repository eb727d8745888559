// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// wholeCharts are renderings that together have every object of the chart, and v's values.
func wholeCharts(t *testing.T, v values) []string {
	t.Helper()
	all := values{"createNamespace": true, "view.page.enabled": true, "openshift.enabled": true, "unaskedDevices.policy": "deny", "placements.signed": "sign",
		"monitoring.dashboard.enabled": true, "autoscaling.enabled": true}
	maps.Copy(all, v)
	text, err := renderIn(t, cluster(t, appsv1.Deployment{}), all) // with a cluster there are hooks
	if err != nil {
		t.Fatal(err)
	}
	// The cluster has no kinds but those of Kubernetes.
	all["webhook.certificates.from"], all["monitoring.podMonitor.enabled"], all["monitoring.rules.enabled"] = "cert-manager", true, true
	return []string{text, render(t, all)}
}

// selectors are the parts of an object that choose others by their labels, as texts.
func selectors(tree any) []string {
	var out []string
	switch v := tree.(type) {
	case []any:
		for _, item := range v {
			out = append(out, selectors(item)...)
		}
	case map[string]any:
		for key, value := range v {
			if strings.HasSuffix(strings.ToLower(key), "selector") {
				text, _ := json.Marshal(value) // it was read from such a text
				out = append(out, string(text))
			}
			out = append(out, selectors(value)...)
		}
	}
	return out
}

// podLabels are those of the pods that an object makes; nil if it makes none.
func podLabels(o *unstructured.Unstructured) map[string]string {
	for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
		if labels, found, _ := unstructured.NestedStringMap(o.Object, append(path, "metadata", "labels")...); found {
			return labels
		}
	}
	return nil
}

func TestEveryObjectAndPodHasTheCommonLabelsAndNoSelector(t *testing.T) {
	common := map[string]any{"cost-center": "42", "example.com/team": "true"}
	kinds, workloads, chosen := map[string]bool{}, 0, 0
	for _, text := range wholeCharts(t, values{"commonLabels": common, "scheduler.podLabels": map[string]any{"cost-center": "43"}}) {
		for _, o := range documents(t, text) {
			kinds[o.GetKind()] = true
			labels := []map[string]string{o.GetLabels()}
			if of := podLabels(o); of != nil {
				workloads++
				labels = append(labels, of)
			}
			for i, l := range labels {
				more := i == 1 && (o.GetName() == "deviceshare-scheduler" || o.GetName() == "deviceshare-withdraw")
				if l["example.com/team"] != "true" || l["app.kubernetes.io/part-of"] != "deviceshare" || (l["cost-center"] == "43") != more {
					t.Errorf("%s has the labels %v", keyOf(o), l)
				}
			}
			for _, s := range selectors(o.Object) {
				chosen++
				if strings.Contains(s, "cost-center") || strings.Contains(s, "example.com/team") {
					t.Errorf("%s selects by %s", keyOf(o), s)
				}
			}
		}
	}
	for _, kind := range []string{"Namespace", "PodDisruptionBudget", "Job", "CronJob", "Certificate", "PodMonitor", "PrometheusRule", "Secret", "Lease", "ValidatingAdmissionPolicy"} {
		if !kinds[kind] {
			t.Errorf("there is no %s: the test loses what it is about", kind)
		}
	}
	if workloads < 10 || chosen < 12 {
		t.Errorf("%d workloads, %d selectors", workloads, chosen)
	}
}

func TestEveryAccountHasTheAnnotationsOfItsComponent(t *testing.T) {
	of := map[string]string{"deviceshare-scheduler": "scheduler", "deviceshare-withdraw": "scheduler", "deviceshare-device-plugin": "devicePlugin",
		"deviceshare-keeper": "keeper", "deviceshare-webhook": "webhook", "deviceshare-webhook-ca": "webhook", "deviceshare-view": "view.page"}
	set := values{}
	for _, component := range of {
		set[component+".serviceAccount.annotations"] = map[string]any{"example.com/role": component}
	}
	found := map[string]bool{}
	for _, text := range wholeCharts(t, set) {
		for _, o := range documents(t, text) {
			got := o.GetAnnotations()["example.com/role"]
			want := ""
			if o.GetKind() == "ServiceAccount" {
				want = of[o.GetName()]
				found[o.GetName()] = true
			}
			if got != want {
				t.Errorf("%s has the annotation %q, want %q", keyOf(o), got, want)
			}
		}
	}
	for name := range of {
		if !found[name] {
			t.Errorf("there is no account %s", name)
		}
	}
}

func TestAMirrorMayNameEachImageAsItLikes(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	set := values{"image.registry": "mirror.example.com/", "image.tag": "v7", "scheduler.image.repository": "gpu/scheduler", "devicePlugin.image.digest": digest,
		"devicePlugin.image.tag": "v8", "view.page.image.tag": "v9"}
	want := map[string]string{"scheduler": "gpu/scheduler:v7", "device-plugin": "deviceshare/device-plugin@" + digest, "keeper": "deviceshare/device-plugin@" + digest,
		"withdraw": "deviceshare/device-plugin@" + digest, "webhook": "deviceshare/webhook:v7", "certify": "deviceshare/webhook:v7", "view": "deviceshare/view:v9"}
	seen := map[string]bool{}
	for _, text := range wholeCharts(t, set) {
		for name, p := range podTemplates(t, text) {
			for _, c := range p.Spec.Containers {
				seen[c.Name] = true
				if c.Image != "mirror.example.com/"+want[c.Name] {
					t.Errorf("%s has the image %s, want %s", name, c.Image, want[c.Name])
				}
			}
		}
	}
	if len(seen) != len(want) {
		t.Errorf("the containers are %v", slices.Sorted(maps.Keys(seen)))
	}
}

// `helm upgrade --reuse-values` knows no value that came with a later version.
func TestTheChartDoesWithoutValuesThatAnEarlierVersionLacked(t *testing.T) {
	lacks := values{"commonLabels": nil}
	for _, workload := range []string{"scheduler", "devicePlugin", "webhook", "view.page", "keeper"} {
		lacks[workload+".serviceAccount"] = nil
		if workload != "keeper" {
			lacks[workload+".image"] = nil
		}
	}
	if render(t, lacks) != render(t, nil) {
		t.Error("the chart is another one without them")
	}
}
