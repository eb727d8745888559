// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fluidPod is the pod of the manifest, and its Dataset.
func fluidPod(t *testing.T) (*corev1.Pod, types.NamespacedName) {
	t.Helper()
	var pod corev1.Pod
	dataset := types.NamespacedName{Namespace: "team"}
	for _, o := range read(t, "fluid.yaml") {
		switch o.GetKind() {
		case "Dataset":
			dataset.Name = o.GetName()
		case "Pod":
			if err := convert(o.Object, &pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	if claim := pod.Spec.Volumes[0].PersistentVolumeClaim; claim == nil || claim.ClaimName != dataset.Name {
		t.Fatalf("the pod mounts %+v, and Fluid names the claim after Dataset %s", pod.Spec.Volumes, dataset.Name)
	}
	return &pod, dataset
}

func TestFluidSendsAPodToTheNodesOfItsCache(t *testing.T) {
	for says, c := range map[string]struct {
		change              func(*corev1.Pod, types.NamespacedName)
		preferred, required bool
	}{
		"the manifest":            {func(*corev1.Pod, types.NamespacedName) {}, true, false},
		"a pod that requires it":  {func(p *corev1.Pod, d types.NamespacedName) { p.Labels[FluidRequires(d)] = "required" }, false, true},
		"a pod without the label": {func(p *corev1.Pod, _ types.NamespacedName) { p.Labels = nil }, false, false},
	} {
		t.Run(says, func(t *testing.T) {
			pod, dataset := fluidPod(t)
			c.change(pod, dataset)
			PreferFluidCache(pod, dataset)
			affinity := &corev1.NodeAffinity{}
			if pod.Spec.Affinity != nil {
				affinity = pod.Spec.Affinity.NodeAffinity
			}
			preferred, required := affinity.PreferredDuringSchedulingIgnoredDuringExecution, affinity.RequiredDuringSchedulingIgnoredDuringExecution
			if (len(preferred) == 1) != c.preferred || (required != nil) != c.required {
				t.Fatalf("affinity %+v", affinity)
			}
			if c.preferred && (preferred[0].Weight != 100 || FluidNodeLabels(dataset)[preferred[0].Preference.MatchExpressions[0].Key] != "true") {
				t.Errorf("it prefers %+v", preferred[0])
			}
		})
	}
}
