// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// updating is a review of the update of a pod by a user.
func updating(t *testing.T, before, after *corev1.Pod, user string) admission.Request {
	r := creation(mustJSON(t, after))
	r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: mustJSON(t, before)}
	r.UserInfo = authenticationv1.UserInfo{Username: user}
	return r
}

func TestOnlyWritersMayChangeWhatAPodHolds(t *testing.T) {
	s := defaults()
	s.Writers = []string{"the-scheduler"}
	h := newTestHandlers(t, s)
	bare := podOf(container("a", amounts{number: "1"}))
	placed := annotated(bare.DeepCopy(), "volcano.sh/vgpu-placement", "{}", "volcano.sh/vgpu-node", "n", "volcano.sh/vgpu-mode", "mig")
	for name, c := range map[string]struct {
		before, after *corev1.Pod
		user, key     string // key: what the refusal names, "" if allowed
	}{
		"nothing changes":            {placed, placed, "somebody", ""},
		"another annotation changes": {placed, annotated(bare.DeepCopy(), "volcano.sh/vgpu-placement", "{}", "volcano.sh/vgpu-node", "n"), "somebody", ""},
		"a key is changed":           {placed, annotated(bare.DeepCopy(), "volcano.sh/vgpu-placement", "{}", "volcano.sh/vgpu-node", "m"), "somebody", "volcano.sh/vgpu-node"},
		"all keys are removed":       {placed, bare, "somebody", "volcano.sh/vgpu-placement, volcano.sh/vgpu-node"},
		"a key is added, and empty":  {bare, annotated(bare.DeepCopy(), "volcano.sh/vgpu-ids-new", ""), "somebody", "volcano.sh/vgpu-ids-new"},
		"a writer":                   {placed, bare, "the-scheduler", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := h.guardPlacement(t.Context(), updating(t, c.before, c.after, c.user))
			if got.Allowed != (c.key == "") || c.key != "" && !strings.Contains(got.Result.Message, "may not change metadata.annotations: "+c.key+":") {
				t.Errorf("%+v", got.AdmissionResponse)
			}
		})
	}
}

func TestAnUpdateThatCannotBeReadIsNotLetThrough(t *testing.T) {
	h := newTestHandlers(t, defaults())
	pod := podOf(container("a", nil))
	for name, change := range map[string]func(*admission.Request){
		"no old pod": func(r *admission.Request) { r.OldObject.Raw = nil },
		"no pod":     func(r *admission.Request) { r.Object.Raw = []byte("{") },
		"a creation": func(r *admission.Request) { r.Operation = admissionv1.Create },
	} {
		r := updating(t, pod, pod, "somebody")
		change(&r)
		if got := h.guardPlacement(t.Context(), r); got.Allowed || got.Result.Code != http.StatusInternalServerError {
			t.Errorf("%s: %+v", name, got.AdmissionResponse)
		}
	}
}
