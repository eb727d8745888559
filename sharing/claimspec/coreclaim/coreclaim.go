// SPDX-License-Identifier: Apache-2.0

// Package coreclaim reads Kubernetes' ResourceClaims and DeviceClasses for package claimspec, and
// finds what the scheduler wrote into a claim's status. Functions here change no object and are
// safe for concurrent use.
package coreclaim

import (
	"errors"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"deviceshare/sharing/claimspec"
	"deviceshare/sharing/wire"
)

// Read describes a claim.
func Read(c *resourcev1.ResourceClaim) claimspec.Claim {
	out := ReadSpec(&c.Spec)
	out.UID, out.Namespace, out.Name = string(c.UID), c.Namespace, c.Name
	return out
}

// ReadSpec describes the spec of a claim, or of a template.
func ReadSpec(spec *resourcev1.ResourceClaimSpec) claimspec.Claim {
	out := claimspec.Claim{Constraints: len(spec.Devices.Constraints)}
	for i := range spec.Devices.Requests {
		out.Requests = append(out.Requests, readRequest(&spec.Devices.Requests[i]))
	}
	for i := range spec.Devices.Config {
		c := &spec.Devices.Config[i]
		out.Configs = appendConfig(out.Configs, fmt.Sprintf("spec.devices.config[%d]", i), c.Requests, &c.DeviceConfiguration)
	}
	return out
}

// ReadClass describes a class.
func ReadClass(class *resourcev1.DeviceClass) claimspec.Class {
	out := claimspec.Class{Name: class.Name, Selectors: readExpressions(class.Spec.Selectors)}
	for i := range class.Spec.Config {
		path := fmt.Sprintf("DeviceClass %s spec.config[%d]", class.Name, i)
		out.Configs = appendConfig(out.Configs, path, nil, &class.Spec.Config[i].DeviceConfiguration)
	}
	return out
}

// ReadAllocatedClass describes what an allocation took over from the classes of the claim.
func ReadAllocatedClass(c *resourcev1.ResourceClaim) (out claimspec.Class) {
	if c.Status.Allocation == nil {
		return out
	}
	for i := range c.Status.Allocation.Devices.Config {
		config := &c.Status.Allocation.Devices.Config[i]
		if config.Source == resourcev1.AllocationConfigSourceClass {
			out.Configs = appendConfig(out.Configs, fmt.Sprintf("status.allocation.devices.config[%d]", i), nil, &config.DeviceConfiguration)
		}
	}
	return out
}

func readRequest(q *resourcev1.DeviceRequest) claimspec.Request {
	out := claimspec.Request{Name: q.Name, Alternatives: len(q.FirstAvailable)}
	e := q.Exactly
	if e == nil {
		return out
	}
	out.Class, out.Mode, out.Count, out.Selectors = e.DeviceClassName, string(e.AllocationMode), e.Count, readExpressions(e.Selectors)
	if e.Count == 0 && (e.AllocationMode == "" || e.AllocationMode == resourcev1.DeviceAllocationModeExactCount) {
		out.Count = 1 // what the API server fills in
	}
	out.Admin = e.AdminAccess != nil && *e.AdminAccess
	if e.Capacity != nil && len(e.Capacity.Requests) > 0 {
		out.Capacity = map[string]int64{}
		for name, amount := range e.Capacity.Requests {
			out.Capacity[string(name)] = wholeUnits(amount)
		}
	}
	return out
}

// wholeUnits is an amount, rounded up; the greatest or least number if it is beyond them.
func wholeUnits(q resource.Quantity) int64 {
	switch {
	case q.CmpInt64(math.MaxInt64) >= 0:
		return math.MaxInt64
	case q.CmpInt64(math.MinInt64) <= 0:
		return math.MinInt64
	}
	return q.Value()
}

// readExpressions returns CEL selectors. One of another kind, which this program does not know, is
// an expression that is no CEL, so that it selects nothing.
func readExpressions(selectors []resourcev1.DeviceSelector) (out []string) {
	for i := range selectors {
		if cel := selectors[i].CEL; cel != nil {
			out = append(out, cel.Expression)
		} else {
			out = append(out, "a selector that is not CEL")
		}
	}
	return out
}

func appendConfig(list []claimspec.Config, path string, requests []string, c *resourcev1.DeviceConfiguration) []claimspec.Config {
	if c.Opaque == nil {
		return list
	}
	return append(list, claimspec.Config{Path: path, Driver: c.Opaque.Driver, Requests: requests, Parameters: c.Opaque.Parameters.Raw})
}

// ErrNotOurs is why an allocation has no placement: it is not of our driver.
var ErrNotOurs = errors.New("the allocation is not of driver " + wire.ClaimDriver)

// OurResults returns the devices of our driver that a claim is allocated.
func OurResults(c *resourcev1.ResourceClaim) (ours []resourcev1.DeviceRequestAllocationResult) {
	if c.Status.Allocation == nil {
		return nil
	}
	for _, result := range c.Status.Allocation.Devices.Results {
		if result.Driver == wire.ClaimDriver {
			ours = append(ours, result)
		}
	}
	return ours
}

// HasOurDevices reports whether a claim is allocated, and has devices of our driver.
func HasOurDevices(c *resourcev1.ResourceClaim) bool { return len(OurResults(c)) > 0 }

// ReadPlacement returns what the scheduler wrote into an allocated claim. The error is ErrNotOurs
// if it has no devices of our driver.
func ReadPlacement(c *resourcev1.ResourceClaim) (wire.ClaimPlacement, error) {
	if !HasOurDevices(c) {
		return wire.ClaimPlacement{}, ErrNotOurs
	}
	var found []byte
	for i := range c.Status.Allocation.Devices.Config {
		o := c.Status.Allocation.Devices.Config[i].Opaque
		switch {
		case o == nil || o.Driver != wire.ClaimDriver || !wire.IsClaimPlacement(o.Parameters.Raw):
		case found != nil:
			return wire.ClaimPlacement{}, fmt.Errorf("read the placement of claim %s/%s: the allocation has two", c.Namespace, c.Name)
		default:
			found = o.Parameters.Raw
		}
	}
	if found == nil {
		return wire.ClaimPlacement{}, fmt.Errorf("read the placement of claim %s/%s: the allocation has none: this scheduler has not written it", c.Namespace, c.Name)
	}
	p, err := wire.DecodeClaimPlacement(found)
	if err != nil {
		return wire.ClaimPlacement{}, fmt.Errorf("read the placement of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	p.Placement.Namespace = c.Namespace
	return p, nil
}

// NameIn returns the name of the claim that a pod's entry means; "" if it is not made yet.
func NameIn(pod *corev1.Pod, entry *corev1.PodResourceClaim) string {
	if entry.ResourceClaimName != nil {
		return *entry.ResourceClaimName
	}
	for i := range pod.Status.ResourceClaimStatuses {
		if s := &pod.Status.ResourceClaimStatuses[i]; s.Name == entry.Name && s.ResourceClaimName != nil {
			return *s.ResourceClaimName
		}
	}
	return ""
}
