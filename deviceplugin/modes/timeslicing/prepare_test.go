// SPDX-License-Identifier: Apache-2.0

package timeslicing

import (
	"context"
	"testing"

	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

// fakeHost has nothing on it: this mode has no effects.
type fakeHost struct{}

func (fakeHost) Preparer(int, bool) modes.Preparer { return New() }
func (fakeHost) Effects() int                      { return 0 }
func (fakeHost) State() string                     { return "" }

func claimOf(o sharing.Owner, container string) modes.Claim {
	return modes.Claim{
		ID: string(o) + "." + container, Owner: o, Namespace: "default", Pod: "p", Container: container,
		Devices: []modes.ClaimedDevice{{
			Device: sharing.Device{ID: "GPU-a"},
			Share:  sharing.Share{Device: "GPU-a", Mode: sharing.TimeSlicing, Memory: sharing.GiB},
		}},
	}
}

func TestPreparerPassesTheSuite(t *testing.T) {
	modestest.Preparer(t, func(*testing.T) modestest.Host { return fakeHost{} }, claimOf)
}

func TestAContainerGetsTheDeviceAndNothingElse(t *testing.T) {
	in, err := New().Prepare(context.Background(), claimOf("uid", "main"))
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Devices) != 1 || in.Devices[0] != "GPU-a" || len(in.Env)+len(in.Mounts)+len(in.DeviceNodes) != 0 {
		t.Errorf("the injection is %+v", in)
	}
}
