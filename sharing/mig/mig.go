// SPDX-License-Identifier: Apache-2.0

// Package mig is the scheduler half of mode mig: a device is cut into partitions
// by its hardware, and a container gets one of them.
package mig

import "deviceshare/sharing"

type backend struct{}

// New returns the backend. It holds no state.
func New() sharing.Backend { return backend{} }

// Mode implements sharing.Backend.
func (backend) Mode() sharing.Mode { return sharing.MIG }

// Fit implements sharing.Backend.
func (backend) Fit(v sharing.View, req *sharing.Request) (sharing.Share, sharing.Reason) {
	return sharing.Share{}, sharing.NoPartitionFits
}
