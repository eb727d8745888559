// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"reflect"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/wire"
)

func annotated(pairs map[string]string) *podspec.Pod {
	p := pod(amounts{number: 1})
	p.Annotations = pairs
	return p
}

func TestWhatAnnotationsSay(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		namespace   string
		want        sharing.PodRequest
	}{
		"one mode":                     {annotations: map[string]string{wire.UserMode: "mps"}, want: sharing.PodRequest{Modes: []sharing.Mode{sharing.MPS}}},
		"modes in order of preference": {annotations: map[string]string{wire.UserMode: "mig,hami-core"}, want: sharing.PodRequest{Modes: []sharing.Mode{sharing.MIG, sharing.HAMiCore}}},
		"models wanted, spaces around them dropped": {
			annotations: map[string]string{wire.UserUseModels: "A100, h100"},
			want:        sharing.PodRequest{Selector: sharing.Selector{UseModels: []string{"A100", "h100"}}},
		},
		"models refused": {
			annotations: map[string]string{wire.UserNotModels: "T4"},
			want:        sharing.PodRequest{Selector: sharing.Selector{NotModels: []string{"T4"}}},
		},
		"devices wanted and refused": {
			annotations: map[string]string{wire.UserUseIDs: "GPU-a,GPU-b", wire.UserNotIDs: "GPU-c"},
			want: sharing.PodRequest{Selector: sharing.Selector{
				UseIDs: []sharing.DeviceID{"GPU-a", "GPU-b"}, NotIDs: []sharing.DeviceID{"GPU-c"},
			}},
		},
		"a UUID as long as they may be": {
			annotations: map[string]string{wire.UserUseIDs: "GPU-" + strings.Repeat("x", 124)},
			want:        sharing.PodRequest{Selector: sharing.Selector{UseIDs: []sharing.DeviceID{sharing.DeviceID("GPU-" + strings.Repeat("x", 124))}}},
		},
		"devices of one NUMA node": {annotations: map[string]string{wire.UserNUMA: "single"}, want: sharing.PodRequest{OneNUMA: true}},
		"no virtual devices":       {annotations: map[string]string{wire.UserVirtual: "never"}, want: sharing.PodRequest{Selector: sharing.Selector{Virtual: sharing.NeverVirtual}}},
		"virtual devices":          {annotations: map[string]string{wire.UserVirtual: "only"}, want: sharing.PodRequest{Selector: sharing.Selector{Virtual: sharing.OnlyVirtual}}},
		"a policy":                 {annotations: map[string]string{wire.UserPolicy: "spread"}, want: sharing.PodRequest{Policy: "spread"}},
		"a group to spread": {
			annotations: map[string]string{wire.UserGroupPolicy: "spread", wire.GroupName: "train"}, namespace: "team",
			want: sharing.PodRequest{Neighbours: &sharing.Neighbours{Group: "train", Spread: true}},
		},
		"a group named by Volcano's own key": {
			annotations: map[string]string{wire.UserGroupPolicy: "spread", wire.VolcanoGroupName: "train"},
			want:        sharing.PodRequest{Neighbours: &sharing.Neighbours{Group: "train", Spread: true}},
		},
		"a group that is not spread": {
			annotations: map[string]string{wire.GroupName: "train"}, want: sharing.PodRequest{Neighbours: &sharing.Neighbours{Group: "train"}},
		},
		"a pod to spread without a group yet": {
			annotations: map[string]string{wire.UserGroupPolicy: "spread"}, want: sharing.PodRequest{Neighbours: &sharing.Neighbours{Spread: true}},
		},
		"no neighbours": {
			annotations: map[string]string{wire.UserNeighbours: "none"}, want: sharing.PodRequest{Neighbours: &sharing.Neighbours{Accepts: sharing.AcceptsNone}},
		},
		"neighbours of its group": {
			annotations: map[string]string{wire.UserNeighbours: "group", wire.GroupName: "g"},
			want:        sharing.PodRequest{Neighbours: &sharing.Neighbours{Accepts: sharing.AcceptsGroup, Group: "g"}},
		},
		"any neighbours": {annotations: map[string]string{wire.UserNeighbours: "any"}},
		"pods that must not be there": {
			annotations: map[string]string{wire.UserNotBeside: "app=llm,tier == gold; team in (red, blue),example.com/batch ;x="},
			want: sharing.PodRequest{Neighbours: &sharing.Neighbours{Avoids: []sharing.Avoidance{
				{Pods: sharing.LabelSelector{{Key: "app", Values: []string{"llm"}}, {Key: "tier", Values: []string{"gold"}}}, Rule: wire.UserNotBeside + ": app=llm,tier == gold"},
				{Pods: sharing.LabelSelector{{Key: "team", Values: []string{"red", "blue"}}, {Key: "example.com/batch"}}, Rule: wire.UserNotBeside + ": team in (red, blue),example.com/batch"},
				{Pods: sharing.LabelSelector{{Key: "x", Values: []string{""}}}, Rule: wire.UserNotBeside + ": x="},
			}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := annotated(c.annotations)
			p.Namespace = c.namespace
			got, mistakes := rules(podspec.DefaultNames(), 1).Read(p)
			if len(mistakes) > 0 {
				t.Fatal(mistakes)
			}
			if c.want.Neighbours == nil {
				c.want.Neighbours = &sharing.Neighbours{}
			}
			c.want.Owner, c.want.Namespace, c.want.Requests = "uid-1", c.namespace, []sharing.Request{{Container: "main", Count: 1, Namespace: c.namespace}}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestMistakesInAnnotations(t *testing.T) {
	const m = "metadata.annotations["
	for name, c := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"an empty mode": {
			map[string]string{wire.UserMode: ""},
			[]string{m + wire.UserMode + `]: is empty: write one mode, or several with commas in order of preference, or leave the annotation out`},
		},
		"a list that ends too late": {
			map[string]string{wire.UserMode: "mig,,hami-core,"},
			[]string{m + wire.UserMode + `]: item 2 is empty`, m + wire.UserMode + `]: item 4 is empty`},
		},
		"a mode in other letters": {
			map[string]string{wire.UserMode: "MIG"},
			[]string{m + wire.UserMode + `]: unknown mode "MIG": want one of mig, hami-core, mps, time-slicing`},
		},
		"a mode with a space": {
			map[string]string{wire.UserMode: "mig, mps"},
			[]string{m + wire.UserMode + `]: unknown mode " mps": want one of mig, hami-core, mps, time-slicing`},
		},
		"empty and double items": {
			map[string]string{wire.UserUseModels: "A100,,A100"},
			[]string{m + wire.UserUseModels + "]: item 2 is empty", m + wire.UserUseModels + `]: "A100" is there twice`},
		},
		"an empty list": {
			map[string]string{wire.UserNotModels: ""},
			[]string{m + wire.UserNotModels + "]: item 1 is empty"},
		},
		"an index where a UUID belongs": {
			map[string]string{wire.UserUseIDs: "0,GPU-a"},
			[]string{m + wire.UserUseIDs + `]: "0" is not a device UUID: want GPU- and the rest, as nvidia-smi -L prints it`},
		},
		"a partition where a UUID belongs": {
			map[string]string{wire.UserNotIDs: "GPU-a[group1-0]"},
			[]string{m + wire.UserNotIDs + `]: "GPU-a[group1-0]" is not a device UUID: want GPU- and the rest, as nvidia-smi -L prints it`},
		},
		"a device wanted and refused": {
			map[string]string{wire.UserUseIDs: "GPU-a", wire.UserNotIDs: "GPU-a"},
			[]string{m + wire.UserNotIDs + "]: GPU-a is also in " + wire.UserUseIDs},
		},
		"a policy that there is not": {
			map[string]string{wire.UserPolicy: "Bin Pack"},
			[]string{m + wire.UserPolicy + `]: unknown policy "Bin Pack": want one of ` + strings.Join(policy.Names(), ", ")},
		},
		"a policy without a name": {
			map[string]string{wire.UserPolicy: ""},
			[]string{m + wire.UserPolicy + `]: unknown policy "": want one of ` + strings.Join(policy.Names(), ", ")},
		},
		"an unknown wish about NUMA nodes": {
			map[string]string{wire.UserNUMA: "0"},
			[]string{m + wire.UserNUMA + `]: unknown value "0": want single`},
		},
		"an unknown wish about virtual devices": {
			map[string]string{wire.UserVirtual: "no"},
			[]string{m + wire.UserVirtual + `]: unknown value "no": want never or only`},
		},
		"no wish about virtual devices": {
			map[string]string{wire.UserVirtual: ""},
			[]string{m + wire.UserVirtual + `]: unknown value "": want never or only`},
		},
		"an unknown policy for groups": {
			map[string]string{wire.UserGroupPolicy: "pack"},
			[]string{m + wire.UserGroupPolicy + `]: unknown policy "pack": want spread`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, mistakes := rules(podspec.DefaultNames(), 1).Read(annotated(c.annotations))
			compare(t, mistakes, c.want)
		})
	}
}

func TestAnnotationsAreCheckedOnPodsThatAskForNothing(t *testing.T) {
	p := &podspec.Pod{Annotations: map[string]string{wire.UserMode: "foo"}}
	if _, mistakes := rules(podspec.DefaultNames(), 1).Read(p); len(mistakes) != 1 {
		t.Errorf("got %v", mistakes)
	}
}

func TestMistakesInWhatIsSaidOfNeighbours(t *testing.T) {
	const m = "metadata.annotations["
	for name, c := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"neighbours that there are not": {
			map[string]string{wire.UserNeighbours: "mutex"},
			[]string{m + wire.UserNeighbours + `]: unknown value "mutex": want one of any, namespace, group, none`},
		},
		"selectors that name no pods": {
			map[string]string{wire.UserNotBeside: "app=llm;;a b,x=y z;k in (a"},
			[]string{
				m + wire.UserNotBeside + `]: selector 2: is empty: want labels of pods, such as app=llm`,
				m + wire.UserNotBeside + `]: selector 3: "a b" is no label: want key=value, key in (value, value), or key for any value`,
				m + wire.UserNotBeside + `]: selector 3: "y z" is no value of a label`,
				m + wire.UserNotBeside + `]: selector 4: "k in (a" is no label: want key=value, key in (value, value), or key for any value`,
			},
		},
		"selectors that say what pods are not": {
			map[string]string{wire.UserNotBeside: "app!=llm;!app;app notin (a,b)"},
			[]string{
				m + wire.UserNotBeside + `]: selector 1: "app!=llm" names pods by what they are not: want labels that they have, or say with volcano.sh/vgpu-neighbours who may be there`,
				m + wire.UserNotBeside + `]: selector 2: "!app" names pods by what they are not: want labels that they have, or say with volcano.sh/vgpu-neighbours who may be there`,
				m + wire.UserNotBeside + `]: selector 3: "app notin (a,b)" names pods by what they are not: want labels that they have, or say with volcano.sh/vgpu-neighbours who may be there`,
			},
		},
		"too many selectors": {
			map[string]string{wire.UserNotBeside: strings.Repeat("a;", 16) + "a"},
			[]string{m + wire.UserNotBeside + `]: 17 selectors, want at most 16`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, mistakes := rules(podspec.DefaultNames(), 1).Read(annotated(c.annotations))
			compare(t, mistakes, c.want)
		})
	}
}
