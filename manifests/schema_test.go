// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestAWrongValueIsRefusedWithItsPath(t *testing.T) {
	amount := func(v any) any { return map[string]any{"requests": map[string]any{"cpu": v}} }
	for name, c := range map[string]struct {
		path  string
		value any
		want  string // of the complaint, which begins with the path
	}{
		"a value there is not":            {"webhok.enabled", false, "at '': additional properties 'webhok' not allowed"},
		"a value there is not, below":     {"scheduler.replica", 2, "at '/scheduler': additional properties 'replica' not allowed"},
		"a text for a number":             {"scheduler.replicas", "two", "at '/scheduler/replicas': got string, want integer"},
		"a fraction":                      {"webhook.replicas", 1.5, "at '/webhook/replicas': got number, want integer"},
		"less than nothing":               {"webhook.replicas", -1, "at '/webhook/replicas': minimum: got -1, want 0"},
		"a text for yes":                  {"webhook.enabled", "yes", "at '/webhook/enabled': got string, want boolean"},
		"one for a list":                  {"image.pullSecrets", "a", "at '/image/pullSecrets': got string, want array"},
		"a map for a text":                {"deviceConfig", map[string]any{"nvidia": 1}, "at '/deviceConfig': got object, want string"},
		"a tag with a blank":              {"image.tag", "v 1", "at '/image/tag': 'v 1' does not match"},
		"no tag":                          {"image.tag", "", "at '/image/tag': '' does not match"},
		"a registry without a slash":      {"image.registry", "registry.example.com", "at '/image/registry': 'registry.example.com' does not match"},
		"an unknown pull policy":          {"image.pullPolicy", "Sometimes", "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"},
		"a namespace nobody looks in":     {"configNamespace", "default", "at '/configNamespace': value must be one of 'kube-system', 'volcano-system'"},
		"a name that is none":             {"schedulerName", "My Scheduler", "at '/schedulerName': 'My Scheduler' does not match"},
		"a label with a value":            {"gpuOperator.clientLabel", "a/b=true", "at '/gpuOperator/clientLabel': 'a/b=true' does not match"},
		"a path that is not absolute":     {"devicePlugin.driverRoot", "run/nvidia", "at '/devicePlugin/driverRoot': 'run/nvidia' does not match"},
		"no path":                         {"devicePlugin.stateDir", "", "at '/devicePlugin/stateDir': '' does not match"},
		"a device that is none":           {"devicePlugin.gdrCopyEnabled", true, "at '/devicePlugin': additional properties 'gdrCopyEnabled' not allowed"},
		"a text for a device":             {"devicePlugin.gdsEnabled", "enabled", "at '/devicePlugin/gdsEnabled': got string, want boolean"},
		"a channel that is none":          {"devicePlugin.imexChannelIDs", []any{0, "all"}, "at '/devicePlugin/imexChannelIDs/1': got string, want integer"},
		"a channel below none":            {"devicePlugin.imexChannelIDs", []any{-1}, "at '/devicePlugin/imexChannelIDs/0': minimum: got -1, want 0"},
		"a channel twice":                 {"devicePlugin.imexChannelIDs", []any{1, 1}, "at '/devicePlugin/imexChannelIDs': items at 0 and 1 are equal"},
		"a size that is none":             {"devicePlugin.mpsShmSize", "64MB", "at '/devicePlugin/mpsShmSize': '64MB' does not match"},
		"an amount that is none":          {"scheduler.resources", amount("lots"), "at '/scheduler/resources/requests/cpu': 'lots' does not match"},
		"a negative amount":               {"scheduler.resources", amount(-1), "at '/scheduler/resources/requests/cpu': minimum: got -1, want 0"},
		"an argument that is no flag":     {"webhook.extraArgs", []any{"v=5"}, "at '/webhook/extraArgs/0': 'v=5' does not match"},
		"a variable without a name":       {"devicePlugin.extraEnv", []any{map[string]any{"value": "a"}}, "at '/devicePlugin/extraEnv/0': missing property 'name'"},
		"a toleration of nothing known":   {"webhook.tolerations", []any{map[string]any{"effect": "Never"}}, "at '/webhook/tolerations/0/effect': value must be one of"},
		"a label that is a number":        {"devicePlugin.nodeSelector", map[string]any{"gpus": 8}, "at '/devicePlugin/nodeSelector/gpus': got number, want string"},
		"no time to end":                  {"keeper.terminationGracePeriodSeconds", 0, "at '/keeper/terminationGracePeriodSeconds': minimum: got 0, want 1"},
		"a writer with quotes":            {"webhook.placementWriters", []any{`a"b`}, "at '/webhook/placementWriters/0': 'a\"b' does not match"},
		"a policy that there is not":      {"unaskedDevices.policy", "forbid", "at '/unaskedDevices/policy': value must be one of 'allow', 'void', 'deny'"},
		"an account of no namespace":      {"unaskedDevices.exemptServiceAccounts", []any{"dcgm"}, "at '/unaskedDevices/exemptServiceAccounts/0': 'dcgm' does not match"},
		"a label with a quote":            {"unaskedDevices.exemptNamespaceLabels", map[string]any{"team": "a\"b"}, "at '/unaskedDevices/exemptNamespaceLabels/team': 'a\"b' does not match"},
		"any resource at all":             {"unaskedDevices.askedBy", []any{"*"}, "at '/unaskedDevices/askedBy/0': '*' does not match"},
		"a second plugin on a node":       {"devicePlugin.updateStrategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": 1}}, "at '/devicePlugin/updateStrategy/rollingUpdate': additional properties 'maxSurge' not allowed"},
		"an update of no node":            {"devicePlugin.updateStrategy", map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": 0}}, "at '/devicePlugin/updateStrategy/rollingUpdate/maxUnavailable'"},
		"a label of the selectors":        {"webhook.podLabels", map[string]any{"app.kubernetes.io/name": "mine"}, "at '/webhook/podLabels'"},
		"a number as annotation":          {"keeper.podAnnotations", map[string]any{"a": 1}, "at '/keeper/podAnnotations/a': got number, want string"},
		"an affinity that is none":        {"scheduler.affinity", map[string]any{"nodeAfinity": map[string]any{}}, "at '/scheduler/affinity': additional properties 'nodeAfinity' not allowed"},
		"a spread over nothing":           {"webhook.topologySpreadConstraints", []any{map[string]any{"maxSkew": 1}}, "at '/webhook/topologySpreadConstraints/0': missing properties"},
		"a priority with a blank":         {"view.page.priorityClassName", "a b", "at '/view/page/priorityClassName': 'a b' does not match"},
		"a common label of the selectors": {"commonLabels", map[string]any{"app.kubernetes.io/name": "mine"}, "at '/commonLabels'"},
		"a common label that adds roles":  {"commonLabels", map[string]any{"rbac.authorization.k8s.io/aggregate-to-edit": "true"}, "at '/commonLabels'"},
		"a digest that is none":           {"scheduler.image.digest", "sha256:0a", "at '/scheduler/image/digest': 'sha256:0a' does not match"},
		"a digest of all images":          {"image.digest", "sha256:0a", "at '/image': additional properties 'digest' not allowed"},
		"a repository with its tag":       {"webhook.image.repository", "mirror/webhook:v1", "at '/webhook/image/repository': 'mirror/webhook:v1' does not match"},
		"an annotation of no text":        {"devicePlugin.serviceAccount.annotations", map[string]any{"a": 1}, "at '/devicePlugin/serviceAccount/annotations/a': got number, want string"},
		"a FIPS that there is not":        {"fips", "strict", "at '/fips': value must be one of 'off', 'on', 'only'"},
		"a time that is none":             {"monitoring.podMonitor.interval", "often", "at '/monitoring/podMonitor/interval': 'often' does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := template(t, values{c.path: c.value}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestEveryCommandOfHelmRefusesAWrongValue(t *testing.T) {
	for _, command := range []string{"lint chart", "template deviceshare chart", "install deviceshare chart --dry-run=client"} {
		_, err := runHelm(t, values{"image.tag": "v 1"}, strings.Fields(command)...)
		if err == nil || !strings.Contains(err.Error(), "at '/image/tag': 'v 1' does not match") {
			t.Errorf("helm %s: %v", command, err)
		}
	}
}

// TestTheSchemaKnowsEveryValueAndNoOther compares values.yaml with the schema, whose objects
// take no other keys.
func TestTheSchemaKnowsEveryValueAndNoOther(t *testing.T) {
	type schema struct {
		Properties           map[string]json.RawMessage
		AdditionalProperties *bool
	}
	var walk func(prefix string, raw []byte) []string
	walk = func(prefix string, raw []byte) []string {
		var s schema
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatalf("%s: %v", prefix, err)
		}
		if s.Properties == nil {
			return []string{strings.TrimSuffix(prefix, ".")}
		}
		if s.AdditionalProperties == nil || *s.AdditionalProperties {
			t.Errorf("%s takes keys that nobody knows", prefix)
		}
		var out []string
		for key, p := range s.Properties {
			out = append(out, walk(prefix+key+".", p)...)
		}
		return out
	}
	got := walk("", []byte(read(t, "chart/values.schema.json")))
	want := append(leaves("", defaults(t)), "global") // Helm itself gives it to a chart within a chart
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the schema has %q, values.yaml %q", got, want)
	}
}
