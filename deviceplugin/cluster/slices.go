// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// How long until the API server is asked again whether it has ResourceSlices: after an error, and
// after it had none, since it may be upgraded.
const (
	askSlicesAgain = 10 * time.Second
	askSlicesLater = 10 * time.Minute
)

// Slices is what DRA drivers offer of one node, in ResourceSlices. It is safe for concurrent use.
// Before Kubernetes 1.34 there are none.
type Slices struct {
	client   kubernetes.Interface
	node     string
	informer cache.SharedIndexInformer
	// known is closed once it is known whether the API server has them, which is in served.
	known  chan struct{}
	served atomic.Bool
}

// NewSlices returns those of a node; none are known until Run.
func NewSlices(client kubernetes.Interface, node string) *Slices {
	return &Slices{
		client: client, node: node, known: make(chan struct{}),
		informer: resourceinformers.NewFilteredResourceSliceInformer(client, 0, cache.Indexers{}, fieldSelector(resourcev1.ResourceSliceSelectorNodeName, node)),
	}
}

// Run watches until ctx ends.
func (s *Slices) Run(ctx context.Context) error {
	tell := sync.OnceFunc(func() { close(s.known) })
	for {
		served, err := s.isServed()
		pause := askSlicesAgain
		if err == nil {
			s.served.Store(served)
			tell()
			pause = askSlicesLater
		}
		if served {
			s.informer.RunWithContext(ctx)
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// isServed asks the API server whether it has ResourceSlices.
func (s *Slices) isServed() (bool, error) {
	list, err := s.client.Discovery().ServerResourcesForGroupVersion(resourcev1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask the API server for %s: %w", resourcev1.SchemeGroupVersion, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "resourceslices" }), nil
}

// WaitForSync returns true once all are known, false if ctx ended before.
func (s *Slices) WaitForSync(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.known:
		return !s.served.Load() || cache.WaitForCacheSync(ctx.Done(), s.informer.HasSynced)
	}
}

// Offers returns what is in them now, by the name of the driver: UUIDs of devices and partitions.
func (s *Slices) Offers(context.Context) (map[string][]string, error) {
	select {
	case <-s.known:
	default:
		return nil, errors.New("the API server has not said yet whether it has ResourceSlices")
	}
	if !s.served.Load() {
		return nil, nil
	}
	if !s.informer.HasSynced() {
		return nil, fmt.Errorf("the ResourceSlices of node %s are not read yet", s.node)
	}
	offers := map[string][]string{}
	for _, object := range s.informer.GetStore().List() {
		slice, ok := object.(*resourcev1.ResourceSlice)
		if !ok || slice.Spec.NodeName == nil || *slice.Spec.NodeName != s.node {
			continue
		}
		if ids := uuidsIn(slice); len(ids) > 0 {
			offers[slice.Spec.Driver] = append(offers[slice.Spec.Driver], ids...)
		}
	}
	for _, ids := range offers {
		slices.Sort(ids)
	}
	return offers, nil
}

// uuidsIn returns the values of attributes that NVIDIA's UUIDs are in, whatever a driver calls
// them.
func uuidsIn(slice *resourcev1.ResourceSlice) (ids []string) {
	for i := range slice.Spec.Devices {
		for _, a := range slice.Spec.Devices[i].Attributes {
			if a.StringValue != nil && (strings.Contains(*a.StringValue, "GPU-") || strings.Contains(*a.StringValue, "MIG-")) {
				ids = append(ids, *a.StringValue)
			}
		}
	}
	return ids
}
