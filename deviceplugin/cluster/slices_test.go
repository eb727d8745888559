// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// sliceOf is a ResourceSlice of a driver; an attribute of each device has the given value.
func sliceOf(name, node, driver string, attribute resourcev1.QualifiedName, values ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.NodeName, s.Spec.Driver = &node, driver
	for _, v := range values {
		model := "NVIDIA A100-SXM4-80GB"
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: "d", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			attribute: {StringValue: &v}, "productName": {StringValue: &model}, "index": {IntValue: new(int64)},
		}})
	}
	return s
}

// withSlices is an API server that has ResourceSlices.
func withSlices(list ...*resourcev1.ResourceSlice) *fake.Clientset {
	api := fake.NewClientset()
	for _, s := range list {
		_ = api.Tracker().Add(s)
	}
	api.Resources = []*metav1.APIResourceList{{GroupVersion: "resource.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "resourceslices"}}}}
	return api
}

func watchSlices(t *testing.T, api *fake.Clientset) *Slices {
	t.Helper()
	s := NewSlices(api, "here")
	if _, err := s.Offers(t.Context()); err == nil {
		t.Error("it is known what is offered before the API server was asked")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	go func() { _ = s.Run(ctx) }()
	if !s.WaitForSync(ctx) {
		t.Fatal("not synced")
	}
	return s
}

// awaitOffers waits for what is offered by drivers.
func awaitOffers(t *testing.T, s *Slices, want map[string][]string) {
	t.Helper()
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { tell() }, DeleteFunc: func(any) { tell() }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.informer.RemoveEventHandler(handler) }()
	for late := time.After(10 * time.Minute); ; {
		got, err := s.Offers(t.Context())
		if err == nil && maps.EqualFunc(got, want, slices.Equal) {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("offered are %v, %v, want %v", got, err, want)
		}
	}
}

func TestWhatDriversOfferOfThisNodeIsKnownByUUID(t *testing.T) {
	api := withSlices(
		sliceOf("a", "here", "gpu.nvidia.com", "uuid", "GPU-b", "GPU-a"), sliceOf("b", "elsewhere", "gpu.nvidia.com", "uuid", "GPU-c"),
		sliceOf("c", "here", "gpu.nvidia.com", "parentUUID", "MIG-a"), sliceOf("d", "here", "example.com", "example.com/id", "shares of GPU-a"),
		sliceOf("e", "here", "dra.cpu", "uuid", "socket-0"), &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "f"}},
	)
	s := watchSlices(t, api)
	awaitOffers(t, s, map[string][]string{"gpu.nvidia.com": {"GPU-a", "GPU-b", "MIG-a"}, "example.com": {"shares of GPU-a"}})
	for _, name := range []string{"a", "d"} {
		if err := api.ResourceV1().ResourceSlices().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitOffers(t, s, map[string][]string{"gpu.nvidia.com": {"MIG-a"}})
}

func TestAnAPIServerWithoutResourceSlicesOffersNothing(t *testing.T) {
	for name, resources := range map[string][]*metav1.APIResourceList{
		"before 1.34":     nil,
		"switched off":    {{GroupVersion: "apps/v1"}},
		"without the one": {{GroupVersion: "resource.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "resourceclaims"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientset()
			api.Resources = resources
			awaitOffers(t, watchSlices(t, api), nil)
			for _, a := range api.Actions() {
				if a.GetVerb() == "list" || a.GetVerb() == "watch" {
					t.Errorf("the API server is asked to %s %s", a.GetVerb(), a.GetResource().Resource)
				}
			}
		})
	}
}
