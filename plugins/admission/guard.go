// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// guardPlacement refuses a change of the annotations by which a pod holds devices, except by
// those who write them. The API server asks only about such changes (package
// registration). A call that cannot be read is answered with an error: nothing else
// depends on the answer.
func (h *Handlers) guardPlacement(_ context.Context, req admission.Request) admission.Response {
	changed, err := changedKeys(req)
	if err != nil {
		h.calls.WithLabelValues("guard", resultUnreadable).Inc()
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if len(changed) == 0 || slices.Contains(h.source.Settings().Writers, req.UserInfo.Username) {
		h.calls.WithLabelValues("guard", resultAccepted).Inc()
		return admission.Allowed("")
	}
	h.calls.WithLabelValues("guard", resultRefused).Inc()
	return admission.Denied(fmt.Sprintf("user %q may not change metadata.annotations: %s: they say which devices the pod holds, and the scheduler writes them; "+
		"to have the pod placed anew, delete it", req.UserInfo.Username, strings.Join(changed, ", ")))
}

// changedKeys returns which of the placement's annotations an update adds, changes
// or removes.
func changedKeys(req admission.Request) ([]string, error) {
	if req.Operation != admissionv1.Update || req.Kind.Group != "" || req.Kind.Kind != "Pod" {
		return nil, fmt.Errorf("%s of %s is not handled, only updates of pods", req.Operation, req.Kind.Kind)
	}
	var before, after metav1.PartialObjectMetadata
	if err := json.Unmarshal(req.OldObject.Raw, &before); err != nil {
		return nil, fmt.Errorf("decode the pod as it was: %w", err)
	}
	if err := json.Unmarshal(req.Object.Raw, &after); err != nil {
		return nil, fmt.Errorf("decode the pod: %w", err)
	}
	return slices.DeleteFunc(PlacementKeys(), func(key string) bool {
		was, had := before.Annotations[key]
		is, has := after.Annotations[key]
		return had == has && was == is
	}), nil
}
