// SPDX-License-Identifier: Apache-2.0

// Package hamicore is the scheduler half of mode hami-core. A device is divided by amounts of
// memory and compute. In the container the library libvgpu.so enforces the amounts.
package hamicore

import "deviceshare/sharing"

type backend struct{}

// New returns the backend. It holds no state.
func New() sharing.Backend { return backend{} }

func (backend) Mode() sharing.Mode { return sharing.HAMiCore }

func (backend) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	return v.Divide(req)
}

// Share implements sharing.Backend. A container that gets a device whole is not
// intercepted: the share says so.
func (backend) Share(v *sharing.View, req *sharing.Request) sharing.Share { return v.Portion(req) }
