// SPDX-License-Identifier: Apache-2.0

// Package policy holds the orderings that choose among devices and among nodes
// that fit: one small pure file per policy.
package policy

import "deviceshare/sharing"

// Policy prefers one device over another and one node over another. Methods are
// pure, do not allocate, and give the same answer for the same arguments.
type Policy interface {
	// Name is what users write.
	Name() string
	// Device scores giving share s of the device; higher is preferred. Equal
	// scores are decided by the order of the devices.
	Device(v *sharing.View, s *sharing.Share) int64
	// Node scores a node as it is before the pod is placed, 0 to 100; higher is
	// preferred.
	Node(views []sharing.View, pod *sharing.PodRequest) int64
}
