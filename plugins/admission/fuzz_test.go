// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/podspec/corepod"
)

// FuzzHandlers feeds arbitrary pod JSON. Nothing panics, what is patched applies
// and needs no second patch, and completion cures exactly what it is for: the
// completed pod has no mistake about a missing number.
func FuzzHandlers(f *testing.F) {
	for _, asks := range []amounts{nil, {memory: "5"}, {cores: "5"}, {percentage: "5"}, {number: "0", memory: "5"}, {number: "-1"}, {memory: "1.5"}, {memory: "1e18", cores: "7"}} {
		pod := podOf(container("a", asks), container("b", asks))
		pod.Spec.InitContainers = []corev1.Container{container("i", asks)}
		f.Add(mustJSON(f, pod))
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: VisibleVariable, Value: "all"}, {}, {Name: VisibleVariable}}
		f.Add(mustJSON(f, annotated(pod, "volcano.sh/vgpu-mode", "foo,,", "volcano.sh/vgpu-use-gpuuuid", " ,GPU-")))
	}
	f.Add([]byte(`{"spec":{"containers":[{"resources":{"limits":{"volcano.sh/vgpu-memory":5},"requests":null}}]}}`))
	f.Add([]byte(`{"spec":{"containers":null,"initContainers":[{}]}}`))
	f.Add([]byte(`[]`))
	h := newTestHandlers(f, defaults())
	f.Fuzz(func(t *testing.T, raw []byte) {
		h.mutatePod(t.Context(), creation(raw))
		h.validatePod(t.Context(), creation(raw))

		pod := &corev1.Pod{}
		if json.Unmarshal(raw, pod) != nil {
			return
		}
		// The API server sends what it has decoded, so the canonical form of a pod.
		pod.APIVersion, pod.Kind = "v1", "Pod"
		canonical := mustJSON(t, pod)
		resp := h.mutatePod(t.Context(), creation(canonical))
		if !resp.Allowed {
			t.Fatalf("mutation refused a pod: %v", resp.Result)
		}
		completed := apply(t, pod, resp.Patches)
		if again := Complete(completed, defaults()); len(again) > 0 {
			t.Fatalf("completing it twice adds %s", mustJSON(t, again))
		}
		for i := range completed.Spec.Containers {
			r := &completed.Spec.Containers[i].Resources
			// A limit of zero beside a request is a mistake that the API server refuses.
			wanted, limited := r.Limits[memory]
			if !limited {
				wanted = r.Requests[memory]
			}
			_, limit := r.Limits[number]
			_, request := r.Requests[number]
			if corepod.Asks(completed, defaults().Names) && !isMirrorPod(completed) && !wanted.IsZero() && !limit && !request {
				t.Fatalf("container %d still has no number", i)
			}
		}
		if verdict := Review(pod, defaults()); !verdict.Refused() && Review(completed, defaults()).Refused() {
			t.Fatal("completion made a good pod bad")
		}
	})
}
