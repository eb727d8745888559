// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settingsOf are the two ConfigMaps among what the chart makes, as "NAME: what helm does with it".
func settingsOf(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	for _, m := range all[*corev1.ConfigMap](decode(t, text)) {
		if !strings.HasPrefix(m.Name, "volcano-vgpu-") {
			continue
		}
		how := "part of the release"
		if hook := m.Annotations["helm.sh/hook"]; hook != "" {
			how = hook
		}
		if m.Annotations["helm.sh/resource-policy"] == "keep" {
			how += ", kept"
		}
		if len(m.Data) == 0 {
			how += ", empty"
		}
		out = append(out, m.Name+": "+how)
	}
	slices.Sort(out)
	return out
}

func TestSettingsAreMadeOnceAndRemovedAtLast(t *testing.T) {
	const device, node = "volcano-vgpu-device-config: ", "volcano-vgpu-node-config: "
	for name, c := range map[string]struct {
		set  values
		want []string
	}{
		"edited in the cluster": {nil, []string{device + "post-delete, empty", device + "pre-install", node + "post-delete, empty", node + "pre-install"}},
		"one of them a value": {values{"deviceConfig": "nvidia: {}\n"},
			[]string{device + "part of the release, kept", device + "post-delete, empty", node + "post-delete, empty", node + "pre-install"}},
		"of somebody else": {values{"createConfig": false}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := renderIn(t, cluster(t, appsv1.Deployment{}), c.set)
			if err != nil {
				t.Fatal(err)
			}
			if got := settingsOf(t, out); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	t.Run("for kubectl", func(t *testing.T) {
		t.Parallel()
		want := []string{device + "part of the release", node + "part of the release"}
		if got := settingsOf(t, render(t, nil)); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestSettingsThatAreThereAreNotTakenOverByAnInstallation(t *testing.T) {
	address := cluster(t, appsv1.Deployment{}, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "volcano-vgpu-node-config"}})
	_, err := renderIn(t, address, nil)
	if err == nil || !strings.Contains(err.Error(), "ConfigMap kube-system/volcano-vgpu-node-config exists already") ||
		!strings.Contains(err.Error(), "--set createConfig=false") {
		t.Errorf("got %v", err)
	}
	if _, err := renderIn(t, address, values{"createConfig": false}); err != nil {
		t.Error(err)
	}
	if _, err := renderIn(t, address, nil, "--is-upgrade"); err != nil {
		t.Errorf("an upgrade: %v", err)
	}
}
