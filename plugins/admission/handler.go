// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Paths under which the halves are served.
const (
	MutatePath   = "/mutate"
	ValidatePath = "/validate"
	// GuardPath is for pods that exist.
	GuardPath = "/guard"
	// VoidPath is for pods that do not ask, and for ephemeral containers.
	VoidPath = "/void"
)

// Results of one call, the values of the label "result" of the counter.
const (
	resultUntouched  = "untouched"
	resultCompleted  = "completed"
	resultAccepted   = "accepted"
	resultWarned     = "warned"
	resultRefused    = "refused"
	resultUnreadable = "unreadable"
)

// SettingsSource says what is in force now. It is asked anew for every call and must
// be safe for concurrent use.
type SettingsSource interface {
	Settings() Settings
}

// Handlers answers admission reviews. It is safe for concurrent use.
type Handlers struct {
	source  SettingsSource
	decoder admission.Decoder
	calls   *prometheus.CounterVec
}

// NewHandlers returns handlers that judge by the source's settings, and count calls in
// a metric registered with metrics.
func NewHandlers(source SettingsSource, metrics prometheus.Registerer) (*Handlers, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the core API: %w", err)
	}
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "deviceshare_admission_reviews_total",
		Help: "Pods the admission webhook has looked at, by half (mutate, validate, guard, void) and result.",
	}, []string{"half", "result"})
	if err := metrics.Register(calls); err != nil {
		return nil, fmt.Errorf("register the metric of admission reviews: %w", err)
	}
	return &Handlers{source: source, decoder: admission.NewDecoder(scheme), calls: calls}, nil
}

// Register serves all halves on the server. A panic is not turned into an answer, since any
// answer but "allowed" refuses the pod. The connection breaks instead, and the API server
// goes on as if the webhook were down.
func (h *Handlers) Register(server webhook.Server) {
	letFail := false
	server.Register(MutatePath, &admission.Webhook{Handler: admission.HandlerFunc(h.mutatePod), RecoverPanic: &letFail})
	server.Register(ValidatePath, &admission.Webhook{Handler: admission.HandlerFunc(h.validatePod), RecoverPanic: &letFail})
	server.Register(GuardPath, &admission.Webhook{Handler: admission.HandlerFunc(h.guardPlacement), RecoverPanic: &letFail})
	server.Register(VoidPath, &admission.Webhook{Handler: admission.HandlerFunc(h.voidUnasked), RecoverPanic: &letFail})
}

func (h *Handlers) mutatePod(_ context.Context, req admission.Request) admission.Response {
	pod, err := h.decodePod(req)
	if err != nil {
		return h.admitUnchecked("mutate", err)
	}
	settings := h.source.Settings()
	patch, warnings := Complete(pod, settings), limitRangeWarnings(pod, settings)
	if len(patch) == 0 {
		h.calls.WithLabelValues("mutate", resultUntouched).Inc()
		return admission.Allowed("").WithWarnings(warnings...)
	}
	h.calls.WithLabelValues("mutate", resultCompleted).Inc()
	response := admission.Patched("", patch...).WithWarnings(warnings...)
	if keys := copiedKeys(pod); len(keys) > 0 {
		response = response.WithWarnings("metadata.annotations: removed " + strings.Join(keys, ", ") +
			": only the scheduler writes that, so it was probably copied from another pod")
	}
	return response
}

func (h *Handlers) validatePod(_ context.Context, req admission.Request) admission.Response {
	pod, err := h.decodePod(req)
	if err != nil {
		return h.admitUnchecked("validate", err)
	}
	verdict := Review(pod, h.source.Settings())
	response, result := admission.Allowed(""), resultAccepted
	switch {
	case verdict.Refused():
		response, result = admission.Denied(verdict.Message()), resultRefused
	case len(verdict.Warnings) > 0:
		result = resultWarned
	}
	h.calls.WithLabelValues("validate", result).Inc()
	return response.WithWarnings(verdict.Warnings...)
}

// voidUnasked answers for new pods and for new ephemeral containers of pods that exist.
func (h *Handlers) voidUnasked(_ context.Context, req admission.Request) admission.Response {
	var patch []jsonpatch.Operation
	var warnings []string
	if req.SubResource == ephemeralContainers {
		pod, before := &corev1.Pod{}, &corev1.Pod{}
		if err := errors.Join(h.decoder.DecodeRaw(req.Object, pod), h.decoder.DecodeRaw(req.OldObject, before)); err != nil {
			return h.admitUnchecked("void", fmt.Errorf("decode the pod and what it was before: %w", err))
		}
		patch, warnings = VoidEphemeral(pod, before, h.source.Settings())
	} else {
		pod, err := h.decodePod(req)
		if err != nil {
			return h.admitUnchecked("void", err)
		}
		patch, warnings = Void(pod, h.source.Settings())
	}
	if len(patch) == 0 {
		h.calls.WithLabelValues("void", resultUntouched).Inc()
		return admission.Allowed("")
	}
	h.calls.WithLabelValues("void", resultCompleted).Inc()
	return admission.Patched("", patch...).WithWarnings(warnings...)
}

// ephemeralContainers is the subresource by which a pod that exists gets containers.
const ephemeralContainers = "ephemeralcontainers"

// admitUnchecked admits the pod with a warning. The API server has decoded the pod already, so
// the fault is the webhook's, which fails open.
func (h *Handlers) admitUnchecked(half string, err error) admission.Response {
	h.calls.WithLabelValues(half, resultUnreadable).Inc()
	return admission.Allowed("").WithWarnings(fmt.Sprintf("the request for GPU shares was not checked: %v", err))
}

func (h *Handlers) decodePod(req admission.Request) (*corev1.Pod, error) {
	if req.Operation != admissionv1.Create {
		return nil, fmt.Errorf("operation %q is not handled, only the creation of pods", req.Operation)
	}
	if req.Kind.Group != "" || req.Kind.Kind != "Pod" || req.SubResource != "" {
		return nil, fmt.Errorf("%s/%s is not handled, only pods", req.Kind.Kind, req.SubResource)
	}
	if len(req.Object.Raw) == 0 {
		return nil, errors.New("the review carries no pod")
	}
	pod := &corev1.Pod{}
	if err := h.decoder.DecodeRaw(req.Object, pod); err != nil {
		return nil, fmt.Errorf("decode the pod: %w", err)
	}
	return pod, nil
}
