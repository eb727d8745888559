// SPDX-License-Identifier: Apache-2.0

// Package mps is the scheduler half of mode mps. Containers are clients of one MPS control
// daemon per device and run on the device at the same time. libvgpu.so enforces the memory of
// a container, MPS its share of compute.
package mps

import "deviceshare/sharing"

// Clients is how many clients a server is taken to serve where its node does not
// say.
const Clients = 48

// MaxClients is how many clients one MPS server serves at once on a device of this
// compute capability under a driver of this CUDA version (1000 times major plus 10
// times minor, 0 when unknown): 16 before Volta, then 48, and 60 from CUDA 13.1 on,
// by NVIDIA's MPS guide. A capability of 0 is unknown and counts as Volta.
func MaxClients(major, cuda int) int {
	switch {
	case major > 0 && major < 7:
		return 16
	case cuda >= 13010:
		return 60
	}
	return Clients
}

type backend struct{}

// New returns the backend. It holds no state.
func New() sharing.Backend { return backend{} }

func (backend) Mode() sharing.Mode { return sharing.MPS }

// Fit implements sharing.Backend. Every share counts as one client: a container
// that starts more processes than the server has clients left is refused by the
// server, not by us.
//
// A process talks to one control daemon, and every device has its own: one for all
// would let a fault on one device keep new clients from the others, and one user's
// pods keep another's from the whole node. So a container gets one device.
//
// A server serves one user at a time, where the administrator does not let all users share one: the
// processes of another wait in silence. A container whose user only its image knows shares its
// device with nobody.
//
// A fault of one client ends the work of all clients of the device, and they meet in one /dev/shm.
// So a device serves pods of one namespace at a time, where the administrator does not let all
// share one.
// Root could tell the daemon what to do, and is served where the administrator allows that.
func (backend) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	clients := v.Device.MaxClients
	if clients <= 0 {
		clients = Clients
	}
	switch {
	case req.Count > 1:
		return sharing.Cost{}, sharing.OneDevicePerContainer
	case v.Sharers() >= clients:
		return sharing.Cost{}, sharing.TooManyShares
	case v.Device.NoRoot && req.User.MayBeRoot():
		return sharing.Cost{}, sharing.RootUser
	case !v.ServesNamespace(req.Namespace):
		return sharing.Cost{}, sharing.OtherNamespace
	case !v.Serves(req.User):
		return sharing.Cost{}, sharing.OtherUser
	}
	return v.Divide(req)
}

func (backend) Share(v *sharing.View, req *sharing.Request) sharing.Share {
	s := v.Portion(req)
	if v.Device.OneUser {
		s.User = req.User
	}
	return s
}
