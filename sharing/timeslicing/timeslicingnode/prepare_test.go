// SPDX-License-Identifier: Apache-2.0

package timeslicingnode

import (
	"context"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
	"deviceshare/sharing/nodeapi/nodeapitest"
)

// host has nothing on it: this mode has no effects.
type host struct{}

func (host) Preparer(int, bool) nodeapi.Preparer { return New() }
func (host) Effects() int                        { return 0 }
func (host) State() string                       { return "" }

func claimOf(o sharing.Owner, container string) nodeapi.Claim {
	return nodeapi.Claim{
		ID: string(o) + "." + container, Owner: o, Namespace: "default", Pod: "p", Container: container,
		Devices: []nodeapi.ClaimedDevice{{
			Device: sharing.Device{ID: "GPU-a"},
			Share:  sharing.Share{Device: "GPU-a", Mode: sharing.TimeSlicing, Memory: sharing.GiB},
		}},
	}
}

func TestPreparerPassesTheSuite(t *testing.T) {
	nodeapitest.Preparer(t, func(*testing.T) nodeapitest.Host { return host{} }, claimOf)
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
