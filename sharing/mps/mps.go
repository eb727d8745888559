// SPDX-License-Identifier: Apache-2.0

// Package mps is the scheduler half of mode mps: the clients of one MPS control
// daemon run on the device at the same time, each held to its memory and its
// share of compute by the daemon.
package mps

import "deviceshare/sharing"

// Clients is how many clients one MPS server serves from Volta on, by NVIDIA's
// MPS guide.
const Clients = 48

type backend struct{ clients int }

// New returns the backend. It holds no state.
func New() sharing.Backend { return backend{clients: Clients} }

// Mode implements sharing.Backend.
func (backend) Mode() sharing.Mode { return sharing.MPS }

// Fit implements sharing.Backend. Every share counts as one client: a container
// that starts more processes than the server has clients left is refused by the
// server, not by us.
func (b backend) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	if v.Sharers() >= b.clients {
		return sharing.Cost{}, sharing.TooManyShares
	}
	return v.Divide(req)
}

// Share implements sharing.Backend.
func (backend) Share(v *sharing.View, req *sharing.Request) sharing.Share { return v.Portion(req) }
