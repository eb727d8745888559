// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	resourcev1 "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	k8sfeatures "k8s.io/kubernetes/pkg/features"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/claims"
)

// claimInformers are where ResourceClaims and DeviceClasses are listed.
type claimInformers struct {
	claims  clientcache.SharedIndexInformer
	classes resourcelisters.DeviceClassLister
}

// claimSource is what the registry follows.
type claimSource struct {
	classes resourcelisters.DeviceClassLister
	// synced reports whether the registry has taken in all claims that there were at the start.
	synced func() bool
}

// claimsOf implements objectSource. Volcano starts the informers where the API server has
// resource.k8s.io/v1: its gate is set by the server's version.
func (sessionObjects) claimsOf(ssn *framework.Session) *claimInformers {
	if !utilfeature.DefaultFeatureGate.Enabled(k8sfeatures.DynamicResourceAllocation) {
		return nil
	}
	resource := ssn.InformerFactory().Resource().V1()
	return &claimInformers{claims: resource.ResourceClaims().Informer(), classes: resource.DeviceClasses().Lister()}
}

// followClaims has the registry follow the claims of the API server, from the first session on.
func (s *Store) followClaims(ssn *framework.Session) {
	if s.claims == nil || s.claimsOff {
		return
	}
	if s.claimSource.Load() != nil {
		s.selectors.Begin()
		return
	}
	from := s.objects.claimsOf(ssn)
	if from == nil {
		s.claimsOff = true
		klog.InfoS("ResourceClaims are given no devices: the API server has no resource.k8s.io/v1, which came with Kubernetes 1.34")
		return
	}
	handle, err := from.claims.AddEventHandler(registryHandler{s.claims})
	if err != nil {
		klog.ErrorS(err, "Follow ResourceClaims")
		return
	}
	s.claimSource.Store(&claimSource{classes: from.classes, synced: handle.HasSynced})
}

// claimReader returns what reads the claims of pods, nil if this scheduler allocates none. Safe for
// concurrent use.
func (s *Store) claimReader() *claimReader {
	source := s.claimSource.Load()
	if source == nil {
		return nil
	}
	return &claimReader{registry: s.claims, classes: source.classes, selectors: s.selectors}
}

// requireClaims returns an error as long as not all claims are known, which hold devices.
func (s *Store) requireClaims() error {
	if source := s.claimSource.Load(); source != nil && !source.synced() {
		return errClaimsUnread
	}
	return nil
}

// registryHandler tells a registry what an informer sees.
type registryHandler struct{ registry *claims.Registry }

// OnAdd implements clientcache.ResourceEventHandler.
func (h registryHandler) OnAdd(o any, _ bool) { h.observeClaim(o) }

// OnUpdate implements clientcache.ResourceEventHandler.
func (h registryHandler) OnUpdate(_, o any) { h.observeClaim(o) }

// OnDelete implements clientcache.ResourceEventHandler.
func (h registryHandler) OnDelete(o any) {
	if gone, is := o.(clientcache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	if claim, is := o.(*resourcev1.ResourceClaim); is {
		h.registry.Remove(claim)
	}
}

func (h registryHandler) observeClaim(o any) {
	if claim, is := o.(*resourcev1.ResourceClaim); is {
		h.registry.Observe(claim)
	}
}
