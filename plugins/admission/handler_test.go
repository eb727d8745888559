// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	jsonpatch "gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// settingsFunc is a source that is one function.
type settingsFunc func() Settings

func (f settingsFunc) Settings() Settings { return f() }

func newTestHandlers(t testing.TB, s Settings) *Handlers {
	t.Helper()
	h, err := NewHandlers(settingsFunc(func() Settings { return s }), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func creation(raw []byte) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: admissionv1.Create,
		Object: runtime.RawExtension{Raw: raw},
	}}
}

func TestWhatCannotBeReadPassesWithAWarning(t *testing.T) {
	good := mustJSON(t, podOf(container("a", amounts{number: "-1"})))
	tests := map[string]func(*admission.Request){
		"no object":       func(r *admission.Request) { r.Object.Raw = nil },
		"not JSON":        func(r *admission.Request) { r.Object.Raw = []byte("{") },
		"another kind":    func(r *admission.Request) { r.Kind.Kind = "Deployment" },
		"a subresource":   func(r *admission.Request) { r.SubResource = "status" },
		"an update":       func(r *admission.Request) { r.Operation = admissionv1.Update },
		"a bad quantity":  func(r *admission.Request) { r.Object.Raw = bytes.ReplaceAll(good, []byte(`"-1"`), []byte(`"one"`)) },
		"a list of lists": func(r *admission.Request) { r.Object.Raw = []byte(`[[]]`) },
	}
	h := newTestHandlers(t, defaults())
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			req := creation(good)
			change(&req)
			for _, half := range []func(context.Context, admission.Request) admission.Response{h.mutatePod, h.validatePod} {
				resp := half(t.Context(), req)
				if !resp.Allowed || len(resp.Warnings) != 1 || len(resp.Patches) != 0 {
					t.Errorf("allowed %v, warnings %q, %d patches; want it to pass with one warning",
						resp.Allowed, resp.Warnings, len(resp.Patches))
				}
			}
		})
	}
}

func TestEveryReviewIsCountedByItsResult(t *testing.T) {
	registry := prometheus.NewRegistry()
	h, err := NewHandlers(settingsFunc(defaults), registry)
	if err != nil {
		t.Fatal(err)
	}
	h.mutatePod(t.Context(), creation(mustJSON(t, podOf(container("a", nil)))))
	h.mutatePod(t.Context(), creation(mustJSON(t, podOf(container("a", amounts{memory: "5"})))))
	h.validatePod(t.Context(), creation(mustJSON(t, ours(podOf(container("a", amounts{number: "1"}))))))
	h.validatePod(t.Context(), creation(mustJSON(t, podOf(container("a", amounts{number: "1"})))))
	h.validatePod(t.Context(), creation(mustJSON(t, podOf(container("a", amounts{number: "-1"})))))
	h.validatePod(t.Context(), creation(nil))
	want := map[string]float64{
		"mutate completed": 1, "mutate untouched": 1,
		"validate accepted": 1, "validate refused": 1, "validate unreadable": 1, "validate warned": 1,
	}
	if diff := cmp.Diff(want, counts(t, registry)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if _, err := NewHandlers(settingsFunc(defaults), registry); err == nil {
		t.Error("a second set of handlers took the same metric without an error")
	}
}

// counts reads the counter of reviews as "half result".
func counts(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("names of metrics: %v, %v", problems, err)
	}
	out := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		out[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
	}
	return out
}

// serve runs all halves behind TLS, and returns the address and a client that trusts it.
func serve(t *testing.T, h *Handlers) (string, *http.Client) {
	t.Helper()
	hooks := webhook.NewServer(webhook.Options{})
	h.Register(hooks)
	server := httptest.NewTLSServer(hooks.WebhookMux())
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), server.Client()
}

func review(t *testing.T, client *http.Client, url string, pod *corev1.Pod) *admissionv1.AdmissionResponse {
	t.Helper()
	req := creation(mustJSON(t, pod)).AdmissionRequest
	body := mustJSON(t, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &req})
	resp, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &out); err != nil || out.Response == nil {
		t.Fatalf("answer %s: %v", answer, err)
	}
	if out.Response.UID != req.UID || out.Kind != "AdmissionReview" {
		t.Errorf("the answer is for %q of kind %q", out.Response.UID, out.Kind)
	}
	return out.Response
}

func TestAReviewOverTLSAsTheAPIServerSendsIt(t *testing.T) {
	address, client := serve(t, newTestHandlers(t, defaults()))
	defer client.CloseIdleConnections()

	pod := podOf(container("a", amounts{memory: "1000"}))
	answer := review(t, client, "https://"+address+MutatePath, pod)
	if !answer.Allowed || answer.PatchType == nil || *answer.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("answer %+v", answer)
	}
	var patch []jsonpatch.Operation
	if err := json.Unmarshal(answer.Patch, &patch); err != nil {
		t.Fatal(err)
	}
	completed := apply(t, pod, patch)
	if n := completed.Spec.Containers[0].Resources.Limits[number]; n.Value() != 1 || completed.Spec.SchedulerName != "volcano" {
		t.Errorf("completed to %+v", completed.Spec)
	}
	if answer := review(t, client, "https://"+address+ValidatePath, completed); !answer.Allowed {
		t.Errorf("the completed pod is refused: %v", answer.Result)
	}
	answer = review(t, client, "https://"+address+ValidatePath, pod)
	if answer.Allowed || !strings.Contains(answer.Result.Message, "add the line volcano.sh/vgpu-number: 1") {
		t.Errorf("a pod that was not completed: %+v", answer)
	}
	if answer := review(t, client, "https://"+address+MutatePath, podOf(container("a", nil))); !answer.Allowed || answer.Patch != nil {
		t.Errorf("a plain pod: %+v", answer)
	}
}

func TestAPanicBreaksTheCallInsteadOfRefusingThePod(t *testing.T) {
	h, err := NewHandlers(settingsFunc(func() Settings { panic("bug") }), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	address, client := serve(t, h)
	defer client.CloseIdleConnections()
	req := creation(mustJSON(t, podOf(container("a", nil)))).AdmissionRequest
	body := mustJSON(t, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &req})
	resp, err := client.Post("https://"+address+ValidatePath, "application/json", bytes.NewReader(body))
	if err == nil {
		_ = resp.Body.Close()
		t.Errorf("got answer %s; the API server must see a failed call, which it ignores", resp.Status)
	}
}
