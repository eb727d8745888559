// SPDX-License-Identifier: Apache-2.0

// Package factory lists the scheduler half of every backend. Adding a mode takes one line
// here. No backend registers itself, and no mode falls back to another.
package factory

import (
	"deviceshare/sharing"
	"deviceshare/sharing/hamicore"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/mps"
	"deviceshare/sharing/timeslicing"
)

// New returns one backend per mode, in the documented order of the modes.
func New() sharing.Backends {
	return sharing.Backends{mig.New(), hamicore.New(), mps.New(), timeslicing.New()}
}
