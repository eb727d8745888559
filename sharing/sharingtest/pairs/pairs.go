// SPDX-License-Identifier: Apache-2.0

// Package pairs is a backend for tests, and the template of docs/add-a-backend.md:
// the scheduler half of a made-up mode in which a device serves at most two
// containers at a time. Amounts of memory and compute are divided as in most modes.
package pairs

import "deviceshare/sharing"

// Mode is the mode this backend serves. A mode that is not part of this repository
// has a domain in front of its name.
const Mode sharing.Mode = "example.com/pairs"

// most is how many containers a device serves at a time.
const most = 2

type backend struct{}

// New returns the backend. It holds no state.
func New() sharing.Backend { return backend{} }

func (backend) Mode() sharing.Mode { return Mode }

func (backend) Fit(v *sharing.View, req *sharing.Request) (sharing.Cost, sharing.Reason) {
	if v.Sharers() >= most {
		return sharing.Cost{}, sharing.TooManyShares
	}
	return v.Divide(req)
}

func (backend) Share(v *sharing.View, req *sharing.Request) sharing.Share { return v.Portion(req) }
