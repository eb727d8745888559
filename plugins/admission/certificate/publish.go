// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"encoding/base64"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager owns the caBundle, and nothing else of a configuration.
const fieldManager = client.FieldOwner("deviceshare-webhook")

// Configuration is a webhook configuration of the chart.
type Configuration struct{ Kind, Name string }

// String returns kind and name.
func (c Configuration) String() string { return c.Kind + " " + c.Name }

// Configurations returns those of the chart; unasked says that it also registers the webhook for
// pods that ask for no device.
func Configurations(unasked bool) []Configuration {
	out := []Configuration{{"MutatingWebhookConfiguration", "deviceshare"}, {"ValidatingWebhookConfiguration", "deviceshare"}}
	if unasked {
		out = append(out, Configuration{"MutatingWebhookConfiguration", "deviceshare-unasked"})
	}
	return out
}

// publishBundle makes clients trust exactly bundle, and reports whether any of them had another
// one.
func (i *Installer) publishBundle(ctx context.Context, bundle []byte) (changed bool, err error) {
	for _, c := range i.Configurations {
		one, err := i.publishTo(ctx, c, base64.StdEncoding.EncodeToString(bundle))
		if err != nil {
			return false, fmt.Errorf("publish the certificate in %s, which the chart makes: %w", c, err)
		}
		changed = changed || one
	}
	return changed, nil
}

// publishTo writes the bundle into every webhook of a configuration. It creates nothing, and owns
// no field that the chart sets, so that neither overwrites the other.
func (i *Installer) publishTo(ctx context.Context, c Configuration, bundle string) (changed bool, err error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(c.Kind))
	// A server-side apply would create a configuration without rules, or fail for a missing right.
	if err := i.Client.Get(ctx, client.ObjectKey{Name: c.Name}, found); err != nil {
		return false, err
	}
	hooks, _, err := unstructured.NestedSlice(found.Object, "webhooks")
	if err != nil {
		return false, err
	}
	var trusting []any
	for _, h := range hooks {
		hook, _ := h.(map[string]any)
		has, _, err := unstructured.NestedString(hook, "clientConfig", "caBundle")
		if err != nil {
			return false, err
		}
		changed = changed || has != bundle
		trusting = append(trusting, map[string]any{"name": hook["name"], "clientConfig": map[string]any{"caBundle": bundle}})
	}
	if !changed {
		return false, nil
	}
	wanted := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": c.Name}, "webhooks": trusting}}
	wanted.SetGroupVersionKind(found.GroupVersionKind())
	return true, i.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), fieldManager, client.ForceOwnership)
}
