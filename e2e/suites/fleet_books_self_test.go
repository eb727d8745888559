// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/workload"
)

// holder is a live pod of one container on node gpu-1 with what it was given.
func holder(name, text string) corev1.Pod {
	limits := corev1.ResourceList{workload.Number: resource.MustParse("1")}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{"volcano.sh/vgpu-ids-new": text}},
		Spec: corev1.PodSpec{NodeName: "gpu-1", Containers: []corev1.Container{
			{Name: "plain"}, {Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}},
	}
}

func TestTheBooksFindWhatIsGivenTwice(t *testing.T) {
	f := &fleet{nodes: []*fleetNode{newFleetNode(1, "gpu-1", 2)}}
	first := f.nodes[0].devices[0].UUID + ",NVIDIA,"
	for name, c := range map[string]struct {
		pods []corev1.Pod
		want string // in the only complaint; none if empty
	}{
		"exactly all memory":         {[]corev1.Pod{holder("a", first+"4000,10:"), holder("b", first+"96,90:")}, ""},
		"one unit too much":          {[]corev1.Pod{holder("a", first+"4000,10:"), holder("b", first+"97,0:")}, "40970 MiB"},
		"too much compute":           {[]corev1.Pod{holder("a", first+"1,60:"), holder("b", first+"1,41:")}, "101%"},
		"a neighbour of 100 percent": {[]corev1.Pod{holder("a", first+"1,100:"), holder("b", first+"1,0:")}, "exclusive true"},
		"too many sharers":           {slices.Repeat([]corev1.Pod{holder("a", first+"1,0:")}, fleetSplit+1), "too often"},
		"a device of another node":   {[]corev1.Pod{holder("a", "GPU-00000002-0000-0000-0000-000000000000,NVIDIA,1,0:")}, "which there is not"},
		"another number of entries":  {[]corev1.Pod{holder("a", first+"1,0:;"+first+"1,0:")}, "1 containers ask"},
		"no amounts":                 {[]corev1.Pod{holder("a", first+"x,0:")}, "has no amounts"},
	} {
		t.Run(name, func(t *testing.T) {
			got := f.wrong(c.pods)
			if c.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || c.want == "" || !strings.Contains(got[0], c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheBooksFindASlotOfTwoPods(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "device-plugins"), 0o755); err != nil {
		t.Fatal(err)
	}
	entry := `{"PodUID":%q,"ContainerName":"main","ResourceName":"volcano.sh/vgpu-number","DeviceIDs":{"0":["GPU-x-1"]}}`
	text := fmt.Sprintf(`{"Data":{"PodDeviceEntries":[`+entry+`,`+entry+`]},"Checksum":1}`, "a", "b")
	if err := os.WriteFile(filepath.Join(dir, "device-plugins", "kubelet_internal_checkpoint"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	a, b := holder("a", ""), holder("b", "")
	if got := twiceInCheckpoint(dir, []corev1.Pod{a, b}); len(got) != 1 || !strings.Contains(got[0], "GPU-x-1") {
		t.Errorf("two live pods: %q", got)
	}
	if got := twiceInCheckpoint(dir, []corev1.Pod{b}); len(got) != 0 {
		t.Errorf("the other pod is gone: %q", got)
	}
}
