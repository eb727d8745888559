// SPDX-License-Identifier: Apache-2.0

// Package timeslicing is the scheduler half of mode time-slicing: the driver
// lets processes take turns on the device and nothing holds a container to its
// amounts. They are counted all the same, so that what pods ask for together
// never exceeds the device and a well-behaved pod has what it asked for.
package timeslicing

import "deviceshare/sharing"

type backend struct{}

// New returns the backend. It holds no state.
func New() sharing.Backend { return backend{} }

// Mode implements sharing.Backend.
func (backend) Mode() sharing.Mode { return sharing.TimeSlicing }

// Fit implements sharing.Backend.
func (backend) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	return v.Divide(req)
}

// Share implements sharing.Backend.
func (backend) Share(v *sharing.View, req *sharing.Request) sharing.Share { return v.Portion(req) }
