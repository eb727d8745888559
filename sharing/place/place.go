// SPDX-License-Identifier: Apache-2.0

// Package place makes the decision: which shares of which devices of one node a
// pod gets, or why none.
package place

import (
	"deviceshare/sharing"
	"deviceshare/sharing/policy"
)

// Place finds shares for every container of one pod on the devices of one node.
// Later containers see what earlier ones got. It changes none of its arguments,
// gives the same answer for the same arguments, and allocates nothing when it
// refuses. The placement is meaningful only when the refusals refuse nothing.
func Place(views []sharing.View, pod *sharing.PodRequest, backends sharing.Backends, p policy.Policy) (sharing.Placement, sharing.Refusals) {
	panic("not written yet")
}
