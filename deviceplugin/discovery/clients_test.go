// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

func TestHowManyClientsADeviceTakesIsPublishedInModeMPS(t *testing.T) {
	cases := map[string]struct {
		mode          sharing.Mode
		compute, cuda int
		lowered, want int
	}{
		"what a server serves":          {sharing.MPS, 8, 13000, 0, 48},
		"under a newer driver":          {sharing.MPS, 9, 13010, 0, 60},
		"lowered by the administrator":  {sharing.MPS, 9, 13010, 20, 20},
		"never more than a server does": {sharing.MPS, 8, 13000, 100, 48},
		"in another mode":               {sharing.HAMiCore, 8, 13000, 20, 0},
	}
	for name, c := range cases {
		f := Found{Facts: driver.Facts{UUID: "GPU-a", Memory: sharing.GiB, Compute: c.compute, CUDA: c.cuda}}
		inv := Inventory("n", []Found{f}, func(*Found, Offer) string { return "" }, Settings{Device: func(*Found) Offer {
			return Offer{Mode: c.mode, MaxClients: c.lowered}
		}})
		if got := inv.Devices[0].MaxClients; got != c.want {
			t.Errorf("%s: %d clients, want %d", name, got, c.want)
		}
	}
}

func TestADeviceWithoutLimitsForMPSClientsIsUnfitForTheMode(t *testing.T) {
	for compute, want := range map[int]string{6: "older than Volta", 7: "", 0: ""} {
		f := Found{Facts: driver.Facts{Compute: compute}}
		if got := Unfit(&f, sharing.MPS, Settings{}); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("compute capability %d: %q, want %q", compute, got, want)
		}
	}
}
