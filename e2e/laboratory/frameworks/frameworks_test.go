// SPDX-License-Identifier: Apache-2.0

package frameworks

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/workload"
)

const root = "../../../manifests/frameworks"

// read returns the objects of a manifest, with UIDs as a cluster gives them.
func read(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		o.SetUID(types.UID("uid of " + o.GetName()))
		o.SetNamespace("team")
	}
	return objects
}

// all makes what operators make of a manifest, down to what a cluster runs by itself.
func all(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	out := read(t, name)
	for i := 0; i < len(out); i++ {
		made, err := Make(out[i], out)
		if err != nil {
			t.Fatal(err)
		}
		if out[i].GetKind() == "Workflow" {
			steps, err := Steps(out[i])
			if err != nil {
				t.Fatal(err)
			}
			made = slices.Concat(steps...)
		}
		out = append(out, made...)
	}
	return out
}

func TestThePageAndTheManifestsNameEachOther(t *testing.T) {
	page, err := os.ReadFile("../../../docs/frameworks.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, m := range regexp.MustCompile(`\(\.\./manifests/frameworks/([a-z-]+\.yaml)\)`).FindAllStringSubmatch(string(page), -1) {
		named = append(named, m[1])
	}
	files, err := filepath.Glob(filepath.Join(root, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	slices.Sort(named)
	if !slices.Equal(named, files) {
		t.Errorf("the page names %q, and these are there: %q", named, files)
	}
}

func TestWhatAnOperatorMakesBelongsToItsObject(t *testing.T) {
	for name, want := range map[string]struct{ kinds, members string }{
		"jobset.yaml":     {"PodGroup JobSet Service Job Job", "4"},
		"pytorchjob.yaml": {"PyTorchJob PodGroup Pod Pod Pod", "3"},
		"trainjob.yaml":   {"TrainingRuntime TrainJob PodGroup JobSet Service Job", "3"},
		"raycluster.yaml": {"RayCluster PodGroup Pod Pod Pod Pod", "4"},
		"workflow.yaml":   {"Workflow Pod Pod Pod Pod", ""},
	} {
		t.Run(name, func(t *testing.T) {
			given := len(read(t, name))
			var kinds []string
			for i, o := range all(t, name) {
				kinds = append(kinds, o.GetKind())
				owners := o.GetOwnerReferences()
				if i >= given && (len(owners) != 1 || owners[0].Controller == nil || !*owners[0].Controller || owners[0].Name == "") {
					t.Errorf("%s %s has no owner that controls it: %v", o.GetKind(), o.GetName(), owners)
				}
				if o.GetKind() == "PodGroup" {
					var members int
					if err := field(o, &members, "spec", "minMember"); err != nil || want.members != string(rune('0'+members)) {
						t.Errorf("the gang has %d members, want %s (%v)", members, want.members, err)
					}
				}
			}
			if got := strings.Join(kinds, " "); got != want.kinds {
				t.Errorf("made: %s, want %s", got, want.kinds)
			}
		})
	}
}

func TestEveryPodOfAGangNamesTheGroupAndVolcano(t *testing.T) {
	for _, name := range []string{"jobset.yaml", "pytorchjob.yaml", "trainjob.yaml", "raycluster.yaml"} {
		group, pods := "", 0
		for _, o := range all(t, name) {
			if o.GetKind() == "PodGroup" {
				group = o.GetName()
			}
			path := map[string][]string{"Pod": {}, "Job": {"spec", "template"}}[o.GetKind()]
			if path == nil {
				continue
			}
			var p corev1.PodTemplateSpec
			for at, into := range map[string]any{"metadata": &p.ObjectMeta, "spec": &p.Spec} {
				if err := field(o, into, slices.Concat(path, []string{at})...); err != nil {
					t.Fatal(err)
				}
			}
			pods++
			if p.Annotations[workload.GroupKey] != group || p.Spec.SchedulerName != "volcano" {
				t.Errorf("%s: %s %s is in group %q with scheduler %q, want %q", name, o.GetKind(), o.GetName(), p.Annotations[workload.GroupKey], p.Spec.SchedulerName, group)
			}
		}
		if pods == 0 {
			t.Errorf("%s: no pods", name)
		}
	}
}

// The page says that Ray counts none of our resources by itself.
func TestRayCountsWhatItIsToldAndNoneOfOurResources(t *testing.T) {
	one := resource.MustParse("1")
	ours := corev1.ResourceList{workload.Number: one, workload.Memory: one, workload.Cores: one, workload.Percentage: one}
	cases := map[string]struct {
		params map[string]string
		limits corev1.ResourceList
		want   string
	}{
		"our resources alone":         {nil, ours, "ray start"},
		"our resources with the line": {map[string]string{"num-gpus": "2"}, ours, "ray start --num-gpus=2"},
		"a head that says none":       {map[string]string{"num-gpus": "0"}, nil, "ray start --num-gpus=0"},
		"whole cards of NVIDIA":       {nil, corev1.ResourceList{"nvidia.com/gpu": one}, "ray start --num-gpus=1"},
		"none of NVIDIA's cards":      {nil, corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("0")}, "ray start"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := RayCommand(c.params, c.limits); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestDressingReachesEveryContainerAndChangesNoShare(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	containers := 0
	for _, file := range files {
		for _, o := range all(t, filepath.Base(file)) {
			if err := Dress(o, "test"); err != nil {
				t.Fatal(err)
			}
			once := o.DeepCopy()
			if err := Dress(o, "test"); err != nil || !reflect.DeepEqual(once, o) {
				t.Errorf("%s: dressing %s %s again changes it (%v)", file, o.GetKind(), o.GetName(), err)
			}
			if templates(o) == nil {
				continue
			}
			var pod corev1.PodSpec
			if err := field(o, &pod, templates(o)[0]...); err != nil {
				t.Fatal(err)
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				containers++
				number := c.Resources.Limits[workload.Number]
				if asks := c.Command[0] == "/usr/bin/cudaclient"; c.Image != "test" || asks == number.IsZero() {
					t.Errorf("%s: container %s of %s %s: image %s, command %q", file, c.Name, o.GetKind(), o.GetName(), c.Image, c.Command)
				}
			}
		}
	}
	if containers < 20 {
		t.Errorf("only %d containers were found", containers)
	}
}

func TestKueueCountsPodsTimesWhatOneAsksFor(t *testing.T) {
	const multiplied = `
resources:
  transformations:
    - {input: volcano.sh/vgpu-memory, strategy: Replace, multiplyBy: volcano.sh/vgpu-number, outputs: {example.com/total: "1"}}`
	job := func(containers ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Job", "spec": map[string]any{
			"parallelism": int64(3), "template": map[string]any{"spec": map[string]any{"containers": containers}},
		}}}
	}
	asks := func(number, memory string) any {
		return map[string]any{"resources": map[string]any{"limits": map[string]any{"volcano.sh/vgpu-number": number, "volcano.sh/vgpu-memory": memory}}}
	}
	cases := map[string]struct {
		job           *unstructured.Unstructured
		configuration string
		want          map[corev1.ResourceName]int64
	}{
		"as it is":                          {job(asks("2", "100")), "", map[corev1.ResourceName]int64{workload.Number: 6, workload.Memory: 300}},
		"multiplied":                        {job(asks("2", "100")), multiplied, map[corev1.ResourceName]int64{workload.Number: 6, "example.com/total": 600}},
		"two that ask are counted too high": {job(asks("1", "100"), asks("1", "100")), multiplied, map[corev1.ResourceName]int64{workload.Number: 6, "example.com/total": 1200}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			list, err := Counted(c.job, []byte(c.configuration))
			if err != nil {
				t.Fatal(err)
			}
			got := map[corev1.ResourceName]int64{}
			for name, quantity := range list {
				got[name] = quantity.Value()
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestUnreadableManifestsAreErrors(t *testing.T) {
	if _, err := Read([]byte("a: [")); err == nil {
		t.Error("half a list was read")
	}
	for name, o := range map[string]map[string]any{
		"a JobSet whose jobs are no list": {"kind": "JobSet", "spec": map[string]any{"replicatedJobs": "all"}},
		"a TrainJob without its runtime":  {"kind": "TrainJob", "spec": map[string]any{}},
		"a RayCluster of a text":          {"kind": "RayCluster", "spec": "two workers"},
		"a PyTorchJob of a list":          {"kind": "PyTorchJob", "spec": []any{}},
	} {
		if _, err := Make(&unstructured.Unstructured{Object: o}, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Steps(&unstructured.Unstructured{Object: map[string]any{"kind": "Workflow"}}); err == nil {
		t.Error("a Workflow without templates: no error")
	}
}
