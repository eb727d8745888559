// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func under(u Unasked) Settings {
	s := defaults()
	s.Unasked, s.AskedBy = u, []string{"nvidia.com/gpu", "nvidia.com/mig-*"}
	return s
}

// says adds variables to a container: pairs of name and value in one text, or a name alone for a
// variable that comes from elsewhere.
func says(c corev1.Container, env ...string) corev1.Container {
	for _, e := range env {
		name, value, here := strings.Cut(e, "=")
		v := corev1.EnvVar{Name: name, Value: value}
		if !here {
			v.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
		}
		c.Env = append(c.Env, v)
	}
	return c
}

// environment is what says has added.
func environment(c corev1.Container) string {
	var out []string
	for _, v := range c.Env {
		if v.ValueFrom != nil {
			out = append(out, v.Name)
			continue
		}
		out = append(out, v.Name+"="+v.Value)
	}
	return strings.Join(out, " ")
}

func TestWhatContainersSayOfDevicesThatTheyDoNotAskFor(t *testing.T) {
	const v = "NVIDIA_VISIBLE_DEVICES"
	claims := container("a", nil)
	claims.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	for name, c := range map[string]struct {
		container  corev1.Container
		void, deny string
	}{
		"nothing, as an image may":             {container("a", nil), v + "=void", v + "=void"},
		"nothing among other variables":        {says(container("a", nil), "A=1", "B=2"), "A=1 B=2 " + v + "=void", "A=1 B=2 " + v + "=void"},
		"every device":                         {says(container("a", nil), v+"=all", "A=1"), v + "=void A=1", v + "=all A=1"},
		"one device":                           {says(container("a", nil), v+"=GPU-1"), v + "=void", v + "=GPU-1"},
		"what another object says":             {says(container("a", nil), v), v + "=void", v},
		"several things":                       {says(container("a", nil), v+"=void", v+"=0", v+"=none", v+"=all"), v + "=void " + v + "=void " + v + "=none " + v + "=void", v + "=void " + v + "=0 " + v + "=none " + v + "=all"},
		"that it gets none":                    {says(container("a", nil), v+"=none"), v + "=none", v + "=none"},
		"an empty text":                        {says(container("a", nil), v+"="), v + "=", v + "="},
		"nothing, and it asks":                 {container("a", amounts{number: "1"}), "", ""},
		"nothing, and it asks for memory":      {container("a", amounts{memory: "5"}), "", ""},
		"nothing, and it asks for none":        {container("a", amounts{number: "0"}), v + "=void", v + "=void"},
		"nothing, and it asks another plugin":  {container("a", amounts{"nvidia.com/gpu": "1"}), "", ""},
		"nothing, and it asks for a partition": {container("a", amounts{"nvidia.com/mig-1g.5gb": "1"}), "", ""},
		"nothing, and it asks for a network":   {container("a", amounts{"nvidia.com/hostdev": "1"}), v + "=void", v + "=void"},
		"nothing, and it claims":               {claims, "", ""},
		"every device, and it asks for one":    {says(container("a", amounts{"nvidia.com/gpu": "1"}), "A=1", v+"=all", "B=2"), "A=1 B=2", "A=1 " + v + "=all B=2"},
	} {
		for u, want := range map[Unasked]string{UnaskedVoid: c.void, UnaskedDeny: c.deny, UnaskedAllow: environment(c.container), "": environment(c.container)} {
			t.Run(name+"/"+string(u), func(t *testing.T) {
				pod := podOf(container("first", amounts{number: "1"}), c.container)
				pod.Spec.InitContainers = []corev1.Container{c.container}
				before := pod.DeepCopy()
				patch, _ := Void(pod, under(u))
				after := apply(t, pod, patch)
				for _, got := range []corev1.Container{after.Spec.InitContainers[0], after.Spec.Containers[1]} {
					if diff := cmp.Diff(want, environment(got)); diff != "" {
						t.Errorf("what it says (-want +got):\n%s", diff)
					}
				}
				if environment(after.Spec.Containers[0]) != "" {
					t.Errorf("the container with a share says %s", environment(after.Spec.Containers[0]))
				}
				if !equality.Semantic.DeepEqual(before, pod) {
					t.Error("the pod was changed")
				}
				if again, _ := Void(after, under(u)); len(again) > 0 {
					t.Errorf("voiding it twice adds %s", mustJSON(t, again))
				}
			})
		}
	}
}

func TestTheMirrorOfAStaticPodIsNotVoided(t *testing.T) {
	pod := annotated(podOf(container("a", nil)), corev1.MirrorPodAnnotationKey, "x")
	if patch, _ := Void(pod, under(UnaskedVoid)); len(patch) > 0 {
		t.Errorf("%s", mustJSON(t, patch))
	}
}

// ephemeral is a pod with containers for debugging.
func ephemeral(list ...corev1.Container) *corev1.Pod {
	pod := podOf(says(container("main", nil), "NVIDIA_VISIBLE_DEVICES=all"))
	for _, c := range list {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)})
	}
	return pod
}

// The API server refuses changes of everything else of a pod that exists.
func TestOnlyNewEphemeralContainersOfAPodAreVoided(t *testing.T) {
	old := says(container("old", nil), "NVIDIA_VISIBLE_DEVICES=all")
	before, pod := ephemeral(old), ephemeral(old, container("new", nil), says(container("newer", nil), "NVIDIA_VISIBLE_DEVICES=0"))
	h := newTestHandlers(t, under(UnaskedVoid))
	resp := h.voidUnasked(t.Context(), update(mustJSON(t, before), mustJSON(t, pod)))
	if !resp.Allowed || len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], "container newer: NVIDIA_VISIBLE_DEVICES named devices") {
		t.Fatalf("%+v", resp)
	}
	after := apply(t, pod, resp.Patches)
	var got []string
	for _, c := range slices.Concat(after.Spec.Containers, []corev1.Container{corev1.Container(after.Spec.EphemeralContainers[0].EphemeralContainerCommon),
		corev1.Container(after.Spec.EphemeralContainers[1].EphemeralContainerCommon), corev1.Container(after.Spec.EphemeralContainers[2].EphemeralContainerCommon)}) {
		got = append(got, c.Name+" "+environment(c))
	}
	want := []string{"main NVIDIA_VISIBLE_DEVICES=all", "old NVIDIA_VISIBLE_DEVICES=all", "new NVIDIA_VISIBLE_DEVICES=void", "newer NVIDIA_VISIBLE_DEVICES=void"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if resp := h.voidUnasked(t.Context(), update(mustJSON(t, before), mustJSON(t, before))); !resp.Allowed || len(resp.Patches) > 0 {
		t.Errorf("an update that adds nothing: %+v", resp)
	}
}

// update is a review of ephemeral containers.
func update(before, after []byte) admission.Request {
	q := creation(after)
	q.Operation, q.SubResource = admissionv1.Update, ephemeralContainers
	q.OldObject.Raw = before
	return q
}

func TestWhatCannotBeReadIsNotVoidedAndNotRefused(t *testing.T) {
	h := newTestHandlers(t, under(UnaskedVoid))
	for name, q := range map[string]admission.Request{
		"a new pod": creation([]byte("[]")), "an update": update([]byte("{"), mustJSON(t, ephemeral())), "an update without what was": update(nil, mustJSON(t, ephemeral())),
	} {
		if resp := h.voidUnasked(t.Context(), q); !resp.Allowed || len(resp.Patches) > 0 || len(resp.Warnings) != 1 {
			t.Errorf("%s: %+v", name, resp)
		}
	}
}

func TestAnUnknownPolicyIsRefused(t *testing.T) {
	for u, want := range map[Unasked]bool{"allow": true, "void": true, "deny": true, "": false, "Deny": false, "forbid": false} {
		if err := u.Validate(); (err == nil) != want {
			t.Errorf("%q: %v", u, err)
		}
	}
}

// FuzzVoid feeds arbitrary pod JSON. The patch applies, needs no second one, changes nothing but
// environments, and leaves no container that can get devices unasked.
func FuzzVoid(f *testing.F) {
	for _, asks := range []amounts{nil, {memory: "5"}, {number: "0"}, {"nvidia.com/gpu": "1"}} {
		pod := podOf(says(container("a", asks), "NVIDIA_VISIBLE_DEVICES=all", "A=1", "NVIDIA_VISIBLE_DEVICES"), container("b", asks))
		pod.Spec.InitContainers = []corev1.Container{says(container("i", asks), "NVIDIA_VISIBLE_DEVICES=void")}
		f.Add(mustJSON(f, pod))
	}
	f.Add([]byte(`{"spec":{"containers":[{"env":[{}],"resources":{"limits":{"volcano.sh/vgpu-memory":5},"requests":null}}]}}`))
	f.Add([]byte(`{"spec":{"containers":null,"initContainers":[{"env":null}]}}`))
	f.Add([]byte(`[]`))
	h := newTestHandlers(f, under(UnaskedVoid))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h.voidUnasked(t.Context(), creation(raw))
		h.voidUnasked(t.Context(), update(raw, raw))
		pod := &corev1.Pod{}
		if json.Unmarshal(raw, pod) != nil || isMirrorPod(pod) {
			return
		}
		pod.APIVersion, pod.Kind = "v1", "Pod"
		resp := h.voidUnasked(t.Context(), creation(mustJSON(t, pod)))
		if !resp.Allowed {
			t.Fatalf("a pod is refused: %v", resp.Result)
		}
		after := apply(t, pod, resp.Patches)
		if again, _ := Void(after, under(UnaskedVoid)); len(again) > 0 {
			t.Fatalf("voiding it twice adds %s", mustJSON(t, again))
		}
		for _, c := range slices.Concat(after.Spec.InitContainers, after.Spec.Containers) {
			said, asks := 0, len(c.Resources.Claims) > 0
			for _, e := range c.Env {
				if e.Name != "NVIDIA_VISIBLE_DEVICES" {
					continue
				}
				said++
				if e.ValueFrom != nil || e.Value != "" && e.Value != "void" && e.Value != "none" {
					t.Fatalf("container %s says %+v", c.Name, e)
				}
			}
			for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
				for name, amount := range list {
					asks = asks || !amount.IsZero() && (strings.HasPrefix(string(name), "volcano.sh/vgpu-") || name == "nvidia.com/gpu" || strings.HasPrefix(string(name), "nvidia.com/mig-"))
				}
			}
			if said == 0 && !asks {
				t.Fatalf("container %s asks for nothing and says nothing", c.Name)
			}
		}
		for _, p := range []*corev1.Pod{pod, after} {
			for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
				for i := range list {
					list[i].Env = nil
				}
			}
		}
		if !equality.Semantic.DeepEqual(pod, after) {
			t.Fatalf("more than environments changed:\n%s", cmp.Diff(pod, after))
		}
	})
}
