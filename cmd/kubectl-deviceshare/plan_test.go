// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"deviceshare/sharing/wire"
	"deviceshare/view"
)

func TestMistakesInPlansAreTold(t *testing.T) {
	path := file(t, small())
	for line, wants := range map[string][]string{
		"plan":                                {"want one of: a pod that waits, --devices N, --moves N"},
		"plan train-4 --devices 2":            {"want one of"},
		"plan --devices 2 --moves 3":          {"want one of"},
		"plan --devices -1 --moves -3":        {"want one of", "--devices -1: want a number", "--moves -3: want a number from 1 to 64"},
		"plan --moves 65":                     {"--moves 65: want a number from 1 to 64"},
		"plan train-4 --node a":               {"--node, --queue and --priority-class go with --devices"},
		"plan --devices 2 --apply":            {"--apply is for a pod that waits"},
		"plan --moves 2 --apply --watch":      {"--apply is for a pod that waits", "--watch does not go with plan"},
		"plan train-4 --apply --from " + path: {"--from reads a file"},
		"plan a b":                            {"accepts at most 1 arg"},
	} {
		_, err := run(t, strings.Fields(line)...)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", line, err, want)
			}
		}
	}
}

// patched has an API server take patches, and notes them; it refuses those of some pods.
func patched(refuse map[string]error) (*fake.Clientset, *[]string) {
	c, all := fake.NewClientset(), &[]string{}
	c.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchActionImpl)
		*all = append(*all, fmt.Sprintf("%s/%s %v %s", p.Namespace, p.Name, p.PatchOptions.DryRun, p.Patch))
		return true, &corev1.Pod{}, refuse[p.Name]
	})
	return c, all
}

func TestAPlanIsAppliedToAllPodsOrToNone(t *testing.T) {
	steps := []view.Step{{Pod: "ml/a", UID: "1"}, {Pod: "web/b", UID: "2"}, {Pod: "ml/c", UID: "3"}}
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		refuse map[string]error
		wants  []string
	}{
		"all may be changed": {nil, nil},
		"a right lacks": {
			map[string]error{"b": apierrors.NewForbidden(pods, "b", errors.New("no"))},
			[]string{"nothing was changed: you need the right to patch pods in namespace web"},
		},
		"a pod is gone, and another one has the name of a third": {
			map[string]error{"a": apierrors.NewNotFound(pods, "a"), "c": apierrors.NewConflict(pods, "c", errors.New("uid"))},
			[]string{"nothing was changed: ", "pod ml/a is gone by now: plan again", "pod ml/c is gone by now"},
		},
		"the API server is down": {map[string]error{"c": errors.New("down")}, []string{"annotate pod ml/c: down"}},
	} {
		t.Run(name, func(t *testing.T) {
			client, all := patched(c.refuse)
			err := allowAll(t.Context(), client, steps)
			if (err == nil) != (c.wants == nil) {
				t.Fatal(err)
			}
			for _, want := range c.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			real := slices.DeleteFunc(*all, func(s string) bool { return strings.Contains(s, metav1.DryRunAll) })
			if c.wants != nil && len(real) > 0 {
				t.Errorf("changed all the same: %v", real)
			}
			want := `web/b [] {"metadata":{"annotations":{"` + wire.UserMayMove + `":"true"},"uid":"2"}}`
			if c.wants == nil && (len(real) != 3 || real[1] != want) {
				t.Errorf("patched\n%s\nwant in the middle\n%s", strings.Join(real, "\n"), want)
			}
		})
	}
}

func TestWhatWasAppliedCanBeTakenBack(t *testing.T) {
	got := undoText([]view.Step{{Pod: "ml/a"}, {Pod: "web/b"}, {Pod: "ml/c"}})
	const want = "kubectl annotate pod -n ml a c volcano.sh/vgpu-may-move-; kubectl annotate pod -n web b volcano.sh/vgpu-may-move-"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
