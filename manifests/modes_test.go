// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"deviceshare/config"
	"deviceshare/plugins/admission"
	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/sharing"
)

// blocks are the texts of one language in a page.
func blocks(page, language string) []string {
	var out []string
	for _, part := range strings.Split(page, "```"+language+"\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		out = append(out, text)
	}
	return out
}

func TestTheExamplesOfTheModesPageCanBeLoaded(t *testing.T) {
	page := read(t, "../docs/modes.md")
	kinds := map[string]int{}
	for _, text := range blocks(page, "yaml") {
		if strings.HasPrefix(text, "actions:") {
			kinds["scheduler"]++
			loadArguments(t, text)
			continue
		}
		for _, o := range decode(t, text) {
			switch v := o.(type) {
			case *corev1.Pod:
				kinds["pod"]++
				verdict := admission.Review(v, admission.NewSettings(config.DefaultDevice(), []string{"volcano"}))
				if verdict.Refused() || len(verdict.Warnings) > 0 {
					t.Errorf("pod %s: %s %q", v.Name, verdict.Message(), verdict.Warnings)
				}
			case *corev1.ConfigMap:
				kinds["node configuration"]++
				n, problems := config.LoadNode([]byte(v.Data[config.NodeKey]))
				if v.Name != config.NodeName || len(problems) > 0 {
					t.Fatalf("ConfigMap %s: %v", v.Name, problems)
				}
				threeModes(t, n.For("node1"))
			default:
				t.Errorf("nobody loads a %T", o)
			}
		}
	}
	if kinds["scheduler"] != 1 || kinds["pod"] != 1 || kinds["node configuration"] != 1 {
		t.Errorf("the page has %v", kinds)
	}
	for _, m := range sharing.Modes() {
		if !strings.Contains(page, "| `"+string(m)+"` ") {
			t.Errorf("the table has no column %s", m)
		}
	}
}

// loadArguments reads a scheduler's configuration as Volcano does.
func loadArguments(t *testing.T, text string) {
	t.Helper()
	var conf struct {
		Actions string
		Tiers   []struct {
			Plugins []struct {
				Name      string
				Arguments map[string]any
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &conf); err != nil {
		t.Fatal(err)
	}
	for _, tier := range conf.Tiers {
		for _, p := range tier.Plugins {
			if p.Name != deviceshare.PluginName {
				continue
			}
			got, mistakes := arguments.Read(p.Arguments)
			if len(mistakes) > 0 || got.ModeWeights[sharing.HAMiCore] != 100 || got.ModeWeights[sharing.TimeSlicing] != 20 {
				t.Errorf("%+v, %v", got.ModeWeights, mistakes)
			}
			return
		}
	}
	t.Error("the configuration has no plugin " + deviceshare.PluginName)
}

// threeModes checks what the page says of its example: the first rule that matches
// holds, over the mode of the node.
func threeModes(t *testing.T, n config.NodeSettings) {
	t.Helper()
	for _, c := range []struct {
		id    sharing.DeviceID
		index int
		model string
		want  sharing.Mode
	}{
		{"GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448", 1, "Tesla T4", sharing.MIG},
		{"GPU-other", 1, "Tesla T4", sharing.MPS},
		{"GPU-other", 2, "Tesla T4", sharing.TimeSlicing},
		{"GPU-other", 3, "NVIDIA A100-SXM4-80GB", sharing.HAMiCore},
	} {
		if got := n.Device(config.DefaultDevice(), c.id, c.index, c.model); got.Mode != c.want {
			t.Errorf("device %s, index %d, %s is in mode %s, want %s", c.id, c.index, c.model, got.Mode, c.want)
		}
	}
}

// Deleting is confined to the node's own pods by a policy; see e2e/suites/tokens_test.go. A policy
// could not tell whose pod an eviction is about.
func TestTheDevicePluginMayDeletePodsAndChangeNoneOfThem(t *testing.T) {
	for value, want := range map[bool]map[string]string{
		false: {"pods": "get,list,watch,delete"},
		true:  {"pods": "get,list,watch,delete", "pods/status": "patch"},
	} {
		verbs := map[string]string{}
		for _, r := range all[*rbacv1.ClusterRole](decode(t, render(t, values{"devicePlugin.legacyReceipts": value}))) {
			if r.Name != "deviceshare-device-plugin" {
				continue
			}
			for _, rule := range r.Rules {
				for _, resource := range rule.Resources {
					if strings.HasPrefix(resource, "pods") {
						verbs[resource] = strings.Join(rule.Verbs, ",")
					}
				}
			}
		}
		if !maps.Equal(verbs, want) {
			t.Errorf("with legacyReceipts %v it may %v, want %v", value, verbs, want)
		}
	}
}
