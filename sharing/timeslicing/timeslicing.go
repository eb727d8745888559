// SPDX-License-Identifier: Apache-2.0

// Package timeslicing is the scheduler half of mode time-slicing. The driver lets processes
// take turns on the device, and nothing enforces a container's amounts. The amounts are
// counted all the same: what pods ask for together never exceeds the device, so a
// well-behaved pod has what it asked for.
package timeslicing

import "deviceshare/sharing"

type backend struct{}

// New returns the backend. It holds no state.
func New() sharing.Backend { return backend{} }

func (backend) Mode() sharing.Mode { return sharing.TimeSlicing }

func (backend) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	return v.Divide(req)
}

func (backend) Share(v *sharing.View, req *sharing.Request) sharing.Share { return v.Portion(req) }
