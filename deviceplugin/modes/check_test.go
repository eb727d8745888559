// SPDX-License-Identifier: Apache-2.0

package modes

import (
	"strings"
	"testing"

	"deviceshare/sharing"
)

func goodClaim() Claim {
	return Claim{
		ID: "id-1", Owner: "uid-1", Namespace: "default", Pod: "p", Container: "main",
		Devices: []ClaimedDevice{{
			Device: sharing.Device{ID: "GPU-1"},
			Share:  sharing.Share{Device: "GPU-1", Mode: sharing.HAMiCore, Memory: sharing.GiB},
		}},
	}
}

func TestAClaimIsCheckedBeforeAnythingIsWritten(t *testing.T) {
	cases := map[string]struct {
		spoil func(*Claim)
		want  string
	}{
		"a good claim passes":                 {func(*Claim) {}, ""},
		"no devices":                          {func(c *Claim) { c.Devices = nil }, "no device"},
		"a share of another mode":             {func(c *Claim) { c.Devices[0].Share.Mode = sharing.MIG }, `mode "mig"`},
		"a share of another device":           {func(c *Claim) { c.Devices[0].Share.Device = "GPU-2" }, "GPU-2"},
		"an id that climbs out":               {func(c *Claim) { c.ID = "../x" }, "allocation id"},
		"an owner that is a parent directory": {func(c *Claim) { c.Owner = ".." }, "owner"},
		"an empty container name":             {func(c *Claim) { c.Container = "" }, "container"},
		"a device id with a line break": {func(c *Claim) {
			c.Devices[0].Device.ID, c.Devices[0].Share.Device = "GPU-1\nx", "GPU-1\nx"
		}, "device id"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := goodClaim()
			tc.spoil(&c)
			err := c.Check(sharing.HAMiCore)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && err == nil:
				t.Error("accepted")
			case err != nil && !strings.Contains(err.Error(), tc.want):
				t.Errorf("the error %q does not say %q", err, tc.want)
			}
		})
	}
}
