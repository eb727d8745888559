// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	informers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Watch calls changed whenever one of the two configurations, or with unasked that for pods
// that ask for nothing, is created, changed or deleted, until ctx ends: an update of the chart
// that replaces them removes what Fill has added. It asks for objects of these names only, so
// that rights on these names suffice. changed must not block.
func Watch(ctx context.Context, c kubernetes.Interface, unasked bool, changed func()) error {
	only := func(name string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	}
	watched := []cache.SharedIndexInformer{
		informers.NewFilteredMutatingWebhookConfigurationInformer(c, 0, cache.Indexers{}, only(Name)),
		informers.NewFilteredValidatingWebhookConfigurationInformer(c, 0, cache.Indexers{}, only(Name)),
	}
	if unasked {
		watched = append(watched, informers.NewFilteredMutatingWebhookConfigurationInformer(c, 0, cache.Indexers{}, only(UnaskedName)))
	}
	for _, i := range watched {
		if _, err := i.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch the webhook configurations: %w", err)
		}
		go i.RunWithContext(ctx)
	}
	<-ctx.Done()
	return nil
}
