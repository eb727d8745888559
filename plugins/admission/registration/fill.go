// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fill adds a CA bundle to both configurations, which somebody else has created. It creates
// nothing, and it owns no field that their creator sets, so that the two never overwrite each
// other. When nothing is missing, nothing is written.
func Fill(ctx context.Context, c client.Client, bundle []byte) error {
	for kind, o := range map[string]client.Object{
		"MutatingWebhookConfiguration":   &admissionv1.MutatingWebhookConfiguration{},
		"ValidatingWebhookConfiguration": &admissionv1.ValidatingWebhookConfiguration{},
	} {
		// A server-side apply would create one without rules, or fail for a missing right.
		err := c.Get(ctx, client.ObjectKey{Name: Name}, o)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("fill %s %q: %w: create it with the chart or with manifests/install/deviceshare.yaml", kind, Name, err)
		}
		if err != nil {
			return fmt.Errorf("read %s %q: %w", kind, Name, err)
		}
	}
	trust := func() *acadmission.WebhookClientConfigApplyConfiguration {
		return acadmission.WebhookClientConfig().WithCABundle(bundle...)
	}
	return applyConfigurations(ctx, c,
		acadmission.MutatingWebhookConfiguration(Name).WithWebhooks(
			acadmission.MutatingWebhook().WithName(mutateName).WithClientConfig(trust())),
		acadmission.ValidatingWebhookConfiguration(Name).WithWebhooks(
			acadmission.ValidatingWebhook().WithName(validateName).WithClientConfig(trust()),
			acadmission.ValidatingWebhook().WithName(guardName).WithClientConfig(trust())))
}
