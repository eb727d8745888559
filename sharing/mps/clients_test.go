// SPDX-License-Identifier: Apache-2.0

package mps_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/mps"
	"deviceshare/sharing/sharingtest"
)

// The server takes 48 clients, however many shares the administrator allows.
func TestADeviceTakesNoMoreClientsThanItsServerServes(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MPS)
	d.MaxShares = 1000
	var held []sharing.Held
	req := sharingtest.Ask("main", 1, 0)
	for i := range 2 * mps.Clients {
		v := sharing.NewView(&d, held)
		share, reason := sharingtest.Fit(mps.New(), &v, &req)
		if reason != sharing.Fits {
			if i != mps.Clients || reason != sharing.TooManyShares {
				t.Errorf("client %d is refused with %v", i+1, reason)
			}
			return
		}
		held = append(held, sharing.Held{Owner: sharing.Owner(fmt.Sprint(i)), Share: share})
	}
	t.Error("every client fits")
}
