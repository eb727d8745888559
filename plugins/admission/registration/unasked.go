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

const (
	// UnaskedName is the name of the MutatingWebhookConfiguration for pods that ask for no
	// device. It is an object of its own so that the chart can make and remove it as a whole.
	// It comes after Name in the order in which the API server calls.
	UnaskedName = "deviceshare-unasked"

	voidName = "void.deviceshare.volcano.sh"
)

// FillUnasked adds the CA bundle to the configuration named UnaskedName, whose rules and exemptions
// belong to the chart alone.
func FillUnasked(ctx context.Context, c client.Client, bundle []byte) error {
	err := c.Get(ctx, client.ObjectKey{Name: UnaskedName}, &admissionv1.MutatingWebhookConfiguration{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("fill MutatingWebhookConfiguration %q: %w: set unaskedDevices.policy of the chart, not a flag alone", UnaskedName, err)
	}
	if err != nil {
		return fmt.Errorf("read MutatingWebhookConfiguration %q: %w", UnaskedName, err)
	}
	m := acadmission.MutatingWebhookConfiguration(UnaskedName).WithWebhooks(acadmission.MutatingWebhook().
		WithName(voidName).WithClientConfig(acadmission.WebhookClientConfig().WithCABundle(bundle...)))
	if err := c.Apply(ctx, m, fieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply MutatingWebhookConfiguration %q: %w", UnaskedName, err)
	}
	return nil
}
