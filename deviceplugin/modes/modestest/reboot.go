// SPDX-License-Identifier: Apache-2.0

package modestest

import (
	"context"
	"testing"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Rebooting is a host that can lose what no machine keeps when it restarts. The
// suite then reboots it too, after a crash at any effect.
type Rebooting interface {
	Host
	Reboot()
}

// reboots lets the host go down at any effect of preparing. Preparing again gives
// the container what it had without the reboot, though names that the hardware
// gives may be others.
func reboots(ctx context.Context, t *testing.T, host func(*testing.T) Host, claim func(sharing.Owner, string) modes.Claim) {
	if _, ok := host(t).(Rebooting); !ok {
		t.Skip("this host has nothing to lose")
	}
	c := claim("owner-1", "main")
	clean := host(t)
	prepare(ctx, t, clean.Preparer(-1, false), c)
	total, state := clean.Effects(), clean.State()
	for _, late := range []bool{false, true} {
		for at := range total + 1 { // the last one is after everything was made
			h := host(t).(Rebooting)
			_, _ = h.Preparer(at, late).Prepare(ctx, c)
			h.Reboot()
			prepare(ctx, t, h.Preparer(-1, false), c)
			if got := h.State(); got != state {
				t.Errorf("effect %d (late %v): after the reboot the host is\n%s\nwant\n%s", at, late, got, state)
			}
		}
	}
}
