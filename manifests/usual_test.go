// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// usual are the usual values of a workload, set all at once.
func usual(workload string) values {
	out := values{"view.page.enabled": true, "image.pullSecrets": []any{"pull"}}
	for path, v := range usualVariants() {
		if strings.HasPrefix(path, workload+".") {
			out[path] = v.value
		}
	}
	return out
}

// Every workload takes the usual values, and none gets those of another.
func TestEveryWorkloadTakesTheUsualValuesAndNoOther(t *testing.T) {
	for workload, name := range map[string]string{
		"scheduler": "deviceshare-scheduler", "devicePlugin": "deviceshare-device-plugin", "keeper": "deviceshare-keeper",
		"webhook": "deviceshare-webhook", "view.page": "deviceshare-view",
	} {
		t.Run(workload, func(t *testing.T) {
			t.Parallel()
			found := false
			for pod, spec := range pods(decode(t, render(t, usual(workload)))) {
				c := spec.Containers[0]
				mine := strings.HasSuffix(pod, name)
				if spec.ImagePullSecrets == nil {
					t.Errorf("%s: no pull secret", pod)
				}
				has := []bool{
					spec.PriorityClassName == "mine", spec.Affinity != nil,
					slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "A" }),
					slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "more" }),
					slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/more" }),
				}
				switch {
				case mine && slices.Contains(has, false):
					t.Errorf("%s lacks some of its values: %v", pod, has)
				case workload == "devicePlugin" && strings.HasSuffix(pod, "deviceshare-keeper"): // has its environment
				case !mine && slices.Contains(has[2:], true):
					t.Errorf("%s has values of %s: %v", pod, workload, has)
				}
				found = found || mine
			}
			if !found {
				t.Fatalf("no pod of %s", name)
			}
		})
	}
}

// Argo CD and Flux render the chart without the cluster and apply it at every sync. With
// gitops.enabled each rendering is the same, and none contains what people make or edit in the
// cluster.
func TestRenderingAgainWithoutAClusterUndoesNothing(t *testing.T) {
	v := values{"gitops.enabled": true, "placements.signed": "require", "unaskedDevices.policy": "deny", "view.page.enabled": true}
	first, second := render(t, v), render(t, v)
	if first != second {
		t.Error("two renderings differ")
	}
	for _, o := range decode(t, first) {
		if slices.Contains([]string{"deviceshare-signing-key", "deviceshare-signing-keys", "volcano-vgpu-device-config", "volcano-vgpu-node-config"}, o.GetName()) {
			t.Errorf("a sync would write %s", id(o))
		}
	}
	v["deviceConfig"], v["nodeConfig"] = "nvidia:\n  deviceSplitCount: 4\n", `{"nodeconfig":[{"name":"a"}]}`
	var written []string
	for _, o := range all[*corev1.ConfigMap](decode(t, render(t, v))) {
		if strings.HasPrefix(o.Name, "volcano-vgpu-") {
			written = append(written, client.Object(o).GetName())
		}
	}
	slices.Sort(written)
	if !slices.Equal(written, []string{"volcano-vgpu-device-config", "volcano-vgpu-node-config"}) {
		t.Errorf("with texts among the values a sync writes %v", written)
	}
}
