// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const installFile = "install/deviceshare.yaml"

const installHeader = `# SPDX-License-Identifier: Apache-2.0
#
# The chart of manifests/chart with its default values, for kubectl apply. Made by
#   go test ./manifests -run TestThePlainFileIsTheRenderedChart -update
`

var update = flag.Bool("update", false, "write install/deviceshare.yaml anew")

func TestThePlainFileIsTheRenderedChart(t *testing.T) {
	want := installHeader + render(t, values{"createNamespace": true})
	if *update {
		if err := os.WriteFile(installFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, installFile) != want {
		t.Errorf("%s is not the rendered chart: run this test with -update", installFile)
	}
}

func TestHelmHasNothingToSayAgainstTheChart(t *testing.T) {
	out, err := runHelm(t, nil, "lint", "--strict", "chart")
	if err != nil || strings.Contains(out, "[WARNING]") {
		t.Errorf("%v\n%s", err, out)
	}
}

// variant is another value for each of the chart's, and what it makes of the objects.
type variant struct {
	value any
	// count is how many more objects there are.
	count int
	// with is what else must be set for the value to matter.
	with values
}

func variants() map[string]variant {
	out := ownVariants()
	for path, v := range usualVariants() {
		out[path] = v
	}
	return out
}

// usualVariants are those of the values that all workloads take in the same way.
func usualVariants() map[string]variant {
	affinity := map[string]any{"nodeAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
		"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Exists"}}}}}}}
	spread := []any{map[string]any{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}}
	out := map[string]variant{
		"keeper.tolerations": {value: []any{map[string]any{"key": "mps", "operator": "Exists"}}},
		"gitops.enabled":     {value: true, count: -2},
		"openshift.enabled":  {value: true, count: 2},
	}
	for _, workload := range []string{"scheduler", "devicePlugin", "keeper", "webhook", "view.page"} {
		count, with := 0, values(nil)
		if workload == "view.page" {
			count, with = 6, values{"view.page.enabled": true}
		}
		if workload == "keeper" {
			out["keeper.serviceAccount.annotations"] = variant{value: map[string]any{"a.b/c": "d"}, count: 2, with: values{"openshift.enabled": true}}
		} else {
			out[workload+".serviceAccount.annotations"] = variant{value: map[string]any{"a.b/c": "d"}, count: count, with: with}
			out[workload+".image.repository"] = variant{value: "mirror/gpu-" + strings.ToLower(workload), count: count, with: with}
			out[workload+".image.tag"] = variant{value: "v8", count: count, with: with}
			out[workload+".image.digest"] = variant{value: "sha256:" + strings.Repeat("0a", 32), count: count, with: with}
		}
		for name, value := range map[string]any{
			"affinity": affinity, "priorityClassName": "mine", "podLabels": map[string]any{"team": "infra"}, "podAnnotations": map[string]any{"a.b/c": "d: e"},
			"extraVolumes":      []any{map[string]any{"name": "more", "emptyDir": map[string]any{}}},
			"extraVolumeMounts": []any{map[string]any{"name": "more", "mountPath": "/more"}},
			"extraEnv":          []any{map[string]any{"name": "A", "value": "b"}},
		} {
			out[workload+"."+name] = variant{value: value, count: count, with: with}
		}
		if workload == "devicePlugin" || workload == "keeper" {
			out[workload+".updateStrategy"] = variant{value: map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": 3}}}
			continue
		}
		out[workload+".topologySpreadConstraints"] = variant{value: spread, count: count, with: with}
		out[workload+".updateStrategy"] = variant{value: map[string]any{"rollingUpdate": map[string]any{"maxSurge": 3}}, count: count, with: with}
	}
	return out
}

func ownVariants() map[string]variant {
	node, amounts := map[string]any{"nvidia.com/gpu.present": "true"}, map[string]any{"limits": map[string]any{"memory": "1Gi"}}
	anywhere, flags := []any{map[string]any{"operator": "Exists"}}, []any{"--v=5"}
	return map[string]variant{
		"createNamespace":  {value: true, count: 1},
		"commonLabels":     {value: map[string]any{"cost-center": "42"}},
		"image.registry":   {value: "registry.example.com/"},
		"image.tag":        {value: "v9"},
		"image.pullPolicy": {value: "Always"}, "image.pullSecrets": {value: []any{"a", "b"}},
		"fips":          {value: "only"},
		"schedulerName": {value: "other"}, "configNamespace": {value: "volcano-system"}, "createConfig": {value: false, count: -2},
		"deviceConfig": {value: "nvidia:\n  deviceSplitCount: 4\n"}, "nodeConfig": {value: `{"nodeconfig":[{"name":"a"}]}`},
		"unaskedDevices.policy": {value: "deny", count: 3}, "unaskedDevices.exemptNamespaces": {value: []any{"monitoring"}},
		"unaskedDevices.exemptNamespaceLabels": {value: node, count: 3, with: values{"unaskedDevices.policy": "deny"}},
		"unaskedDevices.exemptServiceAccounts": {value: []any{"team/dcgm"}, count: 3, with: values{"unaskedDevices.policy": "void"}},
		"unaskedDevices.askedBy":               {value: []any{"example.com/gpu"}, count: 3, with: values{"unaskedDevices.policy": "deny"}},
		"pods.runtimeClasses":                  {value: []any{"mine"}}, "pods.userNamespaces": {value: true},
		"placements.signed": {value: "require", count: 2}, "placements.createKeys": {value: false, with: values{"placements.signed": "sign"}},
		"scheduler.enabled":  {value: false, count: -10},
		"scheduler.replicas": {value: 1, count: -1}, "scheduler.config": {value: "actions: \"allocate\"\ntiers: [{plugins: [{name: deviceshare}]}]\n"},
		"scheduler.resources": {value: amounts}, "scheduler.nodeSelector": {value: node}, "scheduler.tolerations": {value: anywhere},
		"scheduler.extraArgs":              {value: flags},
		"webhook.certificates.from":        {value: "cert-manager", count: -4},
		"webhook.certificates.schedule":    {value: "@daily"},
		"webhook.certificates.issuer.name": {value: "corporate", count: -7, with: values{"webhook.certificates.from": "cert-manager"}},
		"webhook.certificates.issuer.kind": {value: "Issuer", count: -7, with: values{"webhook.certificates.from": "cert-manager", "webhook.certificates.issuer.name": "a"}},
		"webhook.certificates.secret":      {value: "mine", count: -8, with: values{"webhook.certificates.from": "existing"}},
		"webhook.certificates.caBundle": {value: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", count: -8,
			with: values{"webhook.certificates.from": "existing", "webhook.certificates.secret": "mine"}},
		"webhook.enabled": {value: false, count: -16}, "webhook.replicas": {value: 1, count: -1},
		"webhook.placementWriters": {value: []any{"somebody"}}, "webhook.resources": {value: amounts},
		"webhook.nodeSelector": {value: node}, "webhook.tolerations": {value: anywhere}, "webhook.extraArgs": {value: flags},
		"devicePlugin.nodeSelector": {value: node}, "devicePlugin.tolerations": {value: anywhere}, "devicePlugin.resources": {value: amounts},
		"devicePlugin.runtimeClassName": {value: "nvidia"}, "devicePlugin.driverRoot": {value: "/run/nvidia/driver"},
		"devicePlugin.cdiHookPath": {value: "/opt/hook"}, "devicePlugin.kubeletDir": {value: "/a"}, "devicePlugin.cdiDir": {value: "/b"},
		"devicePlugin.gdrcopyEnabled": {value: true}, "devicePlugin.gdsEnabled": {value: true}, "devicePlugin.mofedEnabled": {value: true},
		"devicePlugin.imexChannelIDs": {value: []any{0, 7}},
		"devicePlugin.stateDir":       {value: "/c"}, "devicePlugin.mpsDir": {value: "/e"},
		"devicePlugin.mpsTenants": {value: "any"}, "devicePlugin.mpsRootUser": {value: "allow"}, "devicePlugin.mpsPipe": {value: "ro"}, "devicePlugin.contestedDevices": {value: "tell"},
		"devicePlugin.mpsShmSize": {value: "2Gi"}, "devicePlugin.extraArgs": {value: flags}, "devicePlugin.podResources.enabled": {value: true},
		"devicePlugin.legacyReceipts":        {value: true},
		"devicePlugin.runtimeSockets":        {value: []any{"/run/a.sock", "/run/b.sock"}},
		"devicePlugin.auditExemptNamespaces": {value: []any{"monitoring", "gpu-operator"}},
		"keeper.registration":                {value: false},
		"gpuOperator.enabled":                {value: true},
		"gpuOperator.evict":                  {value: false, with: values{"gpuOperator.enabled": true}},
		"gpuOperator.clientLabel":            {value: "example.com/evicted", with: values{"gpuOperator.enabled": true}},
		"autoscaling.enabled":                {value: true, count: 5},
		"autoscaling.nodeTypeLabel":          {value: "example.com/pool", count: 5, with: values{"autoscaling.enabled": true}},
		"autoscaling.evictAfter":             {value: "0s", count: 5, with: values{"autoscaling.enabled": true}},
		"keeper.enabled":                     {value: false, count: -1}, "keeper.resources": {value: amounts},
		"keeper.terminationGracePeriodSeconds": {value: 60},
		"view.page.enabled":                    {value: true, count: 6},
		"view.page.extraArgs":                  {value: flags, count: 6, with: values{"view.page.enabled": true}},
		"view.page.resources":                  {value: amounts, count: 6, with: values{"view.page.enabled": true}},
		"view.page.nodeSelector":               {value: node, count: 6, with: values{"view.page.enabled": true}},
		"view.page.tolerations":                {value: anywhere, count: 6, with: values{"view.page.enabled": true}},
		"monitoring.podMonitor.enabled":        {value: true, count: 4},
		"monitoring.podMonitor.interval":       {value: "5s", count: 4, with: values{"monitoring.podMonitor.enabled": true}},
		"monitoring.podMonitor.labels":         {value: node, count: 4, with: values{"monitoring.podMonitor.enabled": true}},
		"monitoring.rules.enabled":             {value: true, count: 1},
		"monitoring.rules.labels":              {value: node, count: 1, with: values{"monitoring.rules.enabled": true}},
		"monitoring.rules.aliases":             {value: true, count: 2, with: values{"monitoring.rules.enabled": true}},
		"monitoring.rules.dcgm":                {value: true, count: 2, with: values{"monitoring.rules.enabled": true}},
		"monitoring.dashboard.enabled":         {value: true, count: 4},
		"monitoring.dashboard.labels":          {value: node, count: 4, with: values{"monitoring.dashboard.enabled": true}},
		// What it does at an installation: see volcano_test.go.
		"volcano.checkScheduler": {value: false},
	}
}

// leaves are the dotted paths of all values: what is not a map with keys, and what users
// give as a whole.
func leaves(prefix string, v map[string]any) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if m, ok := v[key].(map[string]any); ok && len(m) > 0 && key != "resources" && key != "labels" && key != "updateStrategy" {
			out = append(out, leaves(prefix+key+".", m)...)
			continue
		}
		out = append(out, prefix+key)
	}
	return out
}

func defaults(t *testing.T) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.UnmarshalStrict([]byte(read(t, "chart/values.yaml")), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryValueDoesSomethingAndEveryVariantDecodesStrictly(t *testing.T) {
	usual := render(t, nil)
	count := len(decode(t, usual))
	given := variants()
	for _, path := range leaves("", defaults(t)) {
		v, known := given[path]
		delete(given, path)
		if !known {
			t.Errorf("no variant of %s", path)
		}
		if v.value == nil {
			continue
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			before, with := usual, values{path: v.value}
			if v.with != nil {
				before, _ = template(t, v.with) // it may be wrong without the value
				maps.Copy(with, v.with)
			}
			after := render(t, with)
			if after == before {
				t.Error("it does nothing")
			}
			if got := len(decode(t, after)); got != count+v.count {
				t.Errorf("%d objects, want %d", got, count+v.count)
			}
		})
	}
	for path := range given {
		t.Errorf("values.yaml has no %s", path)
	}
}
