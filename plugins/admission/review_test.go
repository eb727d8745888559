// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/wire"
)

func ours(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SchedulerName = "volcano"
	return pod
}

func TestPodsThatAreRefusedAndWhatTheAnswerSays(t *testing.T) {
	good := amounts{number: "1", memory: "1000"}
	tests := map[string]struct {
		pod  *corev1.Pod
		want []string // parts of the message, one for each mistake
	}{
		"memory without a number, as when completion was missed": {
			ours(podOf(container("a", amounts{memory: "5"}))), []string{"add the line volcano.sh/vgpu-number: 1"}},
		"an unknown mode": {
			annotated(ours(podOf(container("a", good))), "volcano.sh/vgpu-mode", "foo"), []string{"vgpu-mode]"}},
		"no mode in the list": {
			annotated(ours(podOf(container("a", good))), "volcano.sh/vgpu-mode", ""), []string{"vgpu-mode]: is empty"}},
		"a mode twice": {
			annotated(ours(podOf(container("a", good))), "volcano.sh/vgpu-mode", "mig,mig"), []string{"twice"}},
		"a negative number": {
			ours(podOf(container("a", amounts{number: "-1"}))), []string{"-1 is negative"}},
		"an absurd number": {
			ours(podOf(container("a", amounts{number: "1000000"}))), []string{"more devices than any node has"}},
		"memory that no device has": {
			ours(podOf(container("a", amounts{number: "1", memory: "9000000000000"}))), []string{"more than any device has"}},
		"memory beyond 64 bits of bytes": {
			ours(podOf(container("a", amounts{number: "1", memory: "9223372036854775807"}))), []string{"more than any device has"}},
		"negative memory": {
			ours(podOf(container("a", amounts{number: "1", memory: "-5"}))), []string{"-5 is negative"}},
		"cores above 100": {
			ours(podOf(container("a", amounts{number: "1", cores: "101"}))), []string{"more than 100"}},
		"a percentage of 101": {
			ours(podOf(container("a", amounts{number: "1", percentage: "101"}))), []string{"outside 1 to 100"}},
		"a percentage beside an amount": {
			ours(podOf(container("a", amounts{number: "1", memory: "5", percentage: "10"}))), []string{"give one of them"}},
		"an unknown policy": {
			annotated(ours(podOf(container("a", good))), "volcano.sh/vgpu-policy", "best"), []string{"unknown policy"}},
		"a split that is not even": {
			annotated(ours(podOf(container("a", amounts{number: "2", cores: "150"}))), "volcano.sh/vgpu-split", "uneven"),
			[]string{"metadata.annotations[volcano.sh/vgpu-split]: unknown split"}},
		"a total that leaves nothing for each": {
			annotated(ours(podOf(container("a", amounts{number: "4", memory: "3"}))), "volcano.sh/vgpu-split", "even"),
			[]string{"resources.limits[volcano.sh/vgpu-memory]: 3 cannot be split evenly over 4 devices"}},
		"a NUMA node by number": {
			annotated(ours(podOf(container("a", good))), "volcano.sh/vgpu-numa", "1"),
			[]string{"metadata.annotations[volcano.sh/vgpu-numa]: unknown value"}},
		"a malformed device UUID": {
			annotated(ours(podOf(container("a", good))), "volcano.sh/vgpu-use-gpuuuid", "0"), []string{"not a device UUID"}},
		"a pod that names its node": {
			with(ours(podOf(container("a", good))), func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), []string{"spec.nodeName: "}},
		"a placement that was put back after completion": {
			annotated(ours(podOf(container("a", good))), "volcano.sh/vgpu-ids-new", "GPU-1,NVIDIA,1,1:", "volcano.sh/vgpu-placement", "{}"),
			[]string{"metadata.annotations[volcano.sh/vgpu-placement]", "metadata.annotations[volcano.sh/vgpu-ids-new]"}},
		"devices for NVIDIA's runtime, put back after completion": {
			with(ours(podOf(container("a", good), container("b", nil))), func(p *corev1.Pod) {
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: VisibleVariable, Value: "all"}}
				p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: VisibleVariable, Value: "void"}} // asks for none
			}),
			[]string{"spec.containers[0] (a) env[NVIDIA_VISIBLE_DEVICES]: NVIDIA's runtime would give"}},
		"every mistake of several containers at once": {
			annotated(with(ours(podOf(container("a", amounts{number: "1", cores: "200"}), container("b", amounts{number: "-2"}))),
				func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{container("i", amounts{memory: "5"})} }),
				"volcano.sh/vgpu-mode", "foo", "volcano.sh/vgpu-policy", "Best!"),
			[]string{"spec.initContainers[0] (i)", "spec.containers[0] (a)", "spec.containers[1] (b)", "vgpu-mode", "vgpu-policy"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := Review(tt.pod, defaults())
			if len(v.Mistakes) != len(tt.want) {
				t.Fatalf("%d mistakes, want %d:\n%s", len(v.Mistakes), len(tt.want), v.Message())
			}
			lines := strings.Split(v.Message(), "\n")
			if len(lines) != len(tt.want)+1 {
				t.Fatalf("want a heading and one line for each mistake, got:\n%s", v.Message())
			}
			for i, part := range tt.want {
				if !strings.Contains(lines[i+1], part) {
					t.Errorf("line %d is %q, want it to contain %q", i+1, lines[i+1], part)
				}
			}
		})
	}
}

func TestPodsThatAreAcceptedAndWithWhatWarning(t *testing.T) {
	good := amounts{number: "1", memory: "1000"}
	tests := map[string]struct {
		pod     *corev1.Pod
		warning string // part of the only warning; "" for none
	}{
		"a plain pod with an annotation nobody checks": {
			annotated(podOf(container("a", nil)), "volcano.sh/vgpu-mode", "foo"), ""},
		"a plain pod of another scheduler": {
			with(podOf(container("a", nil)), func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }), ""},
		"a good pod": {
			annotated(ours(podOf(container("a", good))), "volcano.sh/vgpu-mode", "mig,hami-core", "nvidia.com/use-gputype", "A100"), ""},
		"a good pod of a third scheduler": {
			with(podOf(container("a", good)), func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }), `spec.schedulerName is "other"`},
		"a good pod that waits for somebody": {
			with(ours(podOf(container("a", good))), func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}} }), ""},
		"a good pod with a gate that only another scheduler removes": {
			with(ours(podOf(container("a", good))), func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: corepod.QueueGate}} }),
			"only the scheduler of Volcano 1.15 removes it"},
		"a good pod that wants no neighbours": {
			annotated(ours(podOf(container("a", good))), wire.UserNeighbours, "none"), ""},
		"a good pod that wants a partition, and nobody in the others": {
			annotated(ours(podOf(container("a", good))), wire.UserNeighbours, "none", wire.UserMode, "hami-core,mig"), "all other partitions stay free"},
		"a mirror pod, whatever it asks": {
			annotated(podOf(container("a", amounts{number: "-1"})), corev1.MirrorPodAnnotationKey, "x"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := Review(tt.pod, defaults())
			if v.Refused() {
				t.Fatal(v.Message())
			}
			if tt.warning == "" {
				if len(v.Warnings) > 0 {
					t.Errorf("unexpected warnings %q", v.Warnings)
				}
				return
			}
			if len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], tt.warning) {
				t.Errorf("warnings %q, want one with %q", v.Warnings, tt.warning)
			}
		})
	}
}

func TestOneMistakeIsCalledOneMistake(t *testing.T) {
	v := Review(ours(podOf(container("a", amounts{number: "-1"}))), defaults())
	if !strings.HasPrefix(v.Message(), "the pod asks for GPU shares with 1 mistake:\n  spec.containers[0] (a) ") {
		t.Errorf("message %q", v.Message())
	}
}

// An annotation of users that is not among them would be refused, and one that begins otherwise
// would cause no call.
func TestTheAnnotationsThatAreReadAreAllThatUsersWrite(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../sharing/wire/keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	keys, seen := wire.UserKeys(), 0
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "User") {
			return true
		}
		key, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if seen++; err != nil || !slices.Contains(keys, key) {
			t.Errorf("%s (%s) is not among them: %v", spec.Names[0].Name, key, err)
		}
		return true
	})
	if seen < 9 {
		t.Errorf("only %d annotations of users were found", seen)
	}
}
