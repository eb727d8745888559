// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// workloadValues are another value for each of those that every component has for its pods, all of
// them with a mark of the component.
func workloadValues(component string) map[string]any {
	mark := strings.ReplaceAll(component, ".", "-")
	out := map[string]any{
		"priorityClassName": "class-" + strings.ToLower(mark),
		"podAnnotations":    map[string]any{"example.com/mark": mark, "prometheus.io/scrape": "false"},
		"podLabels":         map[string]any{"example.com/mark": mark},
	}
	if component != "keeper" {
		term := map[string]any{"matchExpressions": []any{map[string]any{"key": "mark", "operator": "In", "values": []any{mark}}}}
		out["affinity"] = map[string]any{"nodeAffinity": map[string]any{
			"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{"nodeSelectorTerms": []any{term}}}}
	}
	if component == "keeper" || component == "devicePlugin" {
		out["updateStrategy"] = map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": 7}}
		return out
	}
	out["updateStrategy"] = map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": 3}}
	out["topologySpreadConstraints"] = []any{map[string]any{"maxSkew": 2, "topologyKey": "zone-" + mark, "whenUnsatisfiable": "DoNotSchedule"}}
	return out
}

// podTemplates are the templates of the pods of all workloads by their names.
func podTemplates(t *testing.T, text string) map[string]corev1.PodTemplateSpec {
	t.Helper()
	objects, out := decode(t, text), map[string]corev1.PodTemplateSpec{}
	for _, d := range all[*appsv1.Deployment](objects) {
		out[d.Name] = d.Spec.Template
	}
	for _, d := range all[*appsv1.DaemonSet](objects) {
		out[d.Name] = d.Spec.Template
	}
	for _, c := range all[*batchv1.CronJob](objects) {
		out[c.Name+" (CronJob)"] = c.Spec.JobTemplate.Spec.Template
	}
	for _, j := range all[*batchv1.Job](objects) {
		name := j.Name
		if strings.HasPrefix(name, "deviceshare-webhook-ca-") {
			name = "deviceshare-webhook-ca"
		}
		out[name] = j.Spec.Template
	}
	return out
}

// components are whose values a workload has: for its pods, and for their nodes.
func components() map[string][2]string {
	return map[string][2]string{
		"deviceshare-scheduler": {"scheduler", "scheduler"}, "deviceshare-webhook": {"webhook", "webhook"}, "deviceshare-view": {"view.page", "view.page"},
		"deviceshare-device-plugin": {"devicePlugin", "devicePlugin"}, "deviceshare-keeper": {"keeper", "devicePlugin"},
		"deviceshare-webhook-ca": {"webhook", "webhook"}, "deviceshare-webhook-ca (CronJob)": {"webhook", "webhook"}, "deviceshare-withdraw": {"scheduler", "scheduler"},
	}
}

// Whatever a cluster demands of pods, it can be said of every pod of the chart.
func TestEveryPodOfTheChartTakesWhatAClusterDemands(t *testing.T) {
	set := values{"view.page.enabled": true, "image.pullSecrets": []any{"a", map[string]any{"name": "b"}}, "keeper.tolerations": []any{map[string]any{"key": "k", "operator": "Exists"}}}
	for _, component := range []string{"scheduler", "devicePlugin", "keeper", "webhook", "view.page"} {
		for name, value := range workloadValues(component) {
			set[component+"."+name] = value
		}
	}
	text, err := renderIn(t, cluster(t, appsv1.Deployment{}), set) // with a cluster there is the Job that withdraws
	if err != nil {
		t.Fatal(err)
	}
	templates := podTemplates(t, text)
	if got, want := slices.Sorted(maps.Keys(templates)), slices.Sorted(maps.Keys(components())); !slices.Equal(got, want) {
		t.Fatalf("the workloads are %q, want %q", got, want)
	}
	for name, p := range templates {
		mark, nodes := strings.ReplaceAll(components()[name][0], ".", "-"), strings.ReplaceAll(components()[name][1], ".", "-")
		if p.Spec.PriorityClassName != "class-"+strings.ToLower(mark) || p.Annotations["example.com/mark"] != mark || p.Annotations["prometheus.io/scrape"] != "false" ||
			p.Labels["example.com/mark"] != mark || p.Labels["app.kubernetes.io/part-of"] != "deviceshare" || p.Labels["app.kubernetes.io/name"] == "" {
			t.Errorf("%s has priority %q, annotations %v, labels %v", name, p.Spec.PriorityClassName, p.Annotations, p.Labels)
		}
		if a := p.Spec.Affinity; a == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != nodes {
			t.Errorf("%s has the affinity %v", name, a)
		}
		if s := p.Spec.ImagePullSecrets; len(s) != 2 || s[0].Name != "a" || s[1].Name != "b" {
			t.Errorf("%s pulls its images with %v", name, s)
		}
	}
	requireSpread(t, templates)
	requireStrategies(t, text)
	tolerated := func(name string) bool {
		return slices.ContainsFunc(templates[name].Spec.Tolerations, func(x corev1.Toleration) bool { return x.Key == "k" })
	}
	if !tolerated("deviceshare-keeper") || tolerated("deviceshare-device-plugin") {
		t.Error("tolerations of the keeper are not those of the device plugin and its own")
	}
}

// requireSpread requires the constraints of workloadValues, with a selector of the own pods.
func requireSpread(t *testing.T, templates map[string]corev1.PodTemplateSpec) {
	t.Helper()
	for _, name := range []string{"deviceshare-scheduler", "deviceshare-webhook", "deviceshare-view"} {
		mark := strings.ReplaceAll(components()[name][0], ".", "-")
		s := templates[name].Spec.TopologySpreadConstraints
		if len(s) != 1 || s[0].MaxSkew != 2 || s[0].TopologyKey != "zone-"+mark || s[0].LabelSelector.MatchLabels["app.kubernetes.io/name"] != name {
			t.Errorf("%s is spread by %+v", name, s)
		}
	}
}

func requireStrategies(t *testing.T, text string) {
	t.Helper()
	for _, d := range all[*appsv1.Deployment](decode(t, text)) {
		if u := d.Spec.Strategy.RollingUpdate; u == nil || u.MaxSurge.IntValue() != 3 {
			t.Errorf("%s is updated by %+v", d.Name, d.Spec.Strategy)
		}
	}
	for _, d := range all[*appsv1.DaemonSet](decode(t, text)) {
		if u := d.Spec.UpdateStrategy.RollingUpdate; u == nil || u.MaxUnavailable.IntValue() != 7 || u.MaxSurge.IntValue() != 0 {
			t.Errorf("%s is updated by %+v", d.Name, d.Spec.UpdateStrategy)
		}
	}
}

// An update of a thousand nodes one by one takes hours, and one without a bound takes all GPUs at
// once.
func TestTheDevicePluginIsUpdatedOnATwentiethOfTheNodesAtATime(t *testing.T) {
	u := daemonSets(t, "deviceshare-device-plugin")[0].Spec.UpdateStrategy.RollingUpdate
	for nodes, want := range map[int]int{1: 1, 5: 1, 20: 1, 1000: 50} {
		if got, err := intstr.GetScaledValueFromIntOrPercent(u.MaxUnavailable, nodes, true); err != nil || got != want {
			t.Errorf("of %d nodes %d at a time (%v), want %d", nodes, got, err, want)
		}
	}
	if u.MaxSurge.IntValue() != 0 {
		t.Errorf("%v plugins more on a node", u.MaxSurge)
	}
}

func TestAnUpdateStrategyOnDeleteHasNoNumbers(t *testing.T) {
	for _, d := range all[*appsv1.DaemonSet](decode(t, render(t, values{"devicePlugin.updateStrategy": map[string]any{"type": "OnDelete"}}))) {
		if d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType || d.Spec.UpdateStrategy.RollingUpdate != nil {
			t.Errorf("%s is updated by %+v", d.Name, d.Spec.UpdateStrategy)
		}
	}
}
