// SPDX-License-Identifier: Apache-2.0

package mps_test

import (
	"fmt"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/mps"
	"deviceshare/sharing/sharingtest"
)

// A server takes so many clients, however many shares the administrator allows.
func TestADeviceTakesNoMoreClientsThanItsServerServes(t *testing.T) {
	cases := map[string]struct{ published, want int }{
		"as the node says":                        {60, 60},
		"fewer, where the administrator says so":  {3, 3},
		"48, where a node of before does not say": {0, mps.Clients},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := sharingtest.Device(0, "A100-80", sharing.MPS)
			d.MaxShares, d.MaxClients = 1000, c.published
			var held []sharing.Held
			req := sharingtest.Ask("main", 1, 0)
			for i := range c.want + 1 {
				v := sharing.NewView(&d, held, factory.New())
				share, reason := sharingtest.Fit(mps.New(), &v, &req)
				if full := i == c.want; full != (reason == sharing.TooManyShares) || !full && reason != sharing.Fits {
					t.Fatalf("client %d of %d is answered with %v", i+1, c.want, reason)
				}
				held = append(held, sharing.Held{Owner: sharing.Owner(fmt.Sprint(i)), Share: share})
			}
		})
	}
}

func TestHowManyClientsAServerServesFollowsFromTheHardwareAndTheDriver(t *testing.T) {
	cases := map[string]struct{ major, cuda, want int }{
		"before Volta":              {6, 13010, 16},
		"Volta under CUDA 12":       {7, 12080, 48},
		"Hopper under CUDA 13.0":    {9, 13000, 48},
		"Hopper under CUDA 13.1":    {9, 13010, 60},
		"Blackwell under CUDA 13.4": {10, 13040, 60},
		"nothing is known":          {0, 0, 48},
	}
	for name, c := range cases {
		if got := mps.MaxClients(c.major, c.cuda); got != c.want {
			t.Errorf("%s: %d clients, want %d", name, got, c.want)
		}
	}
}

func TestAContainerGetsOneDevice(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MPS)
	v := sharing.NewView(&d, nil, factory.New())
	req := sharingtest.Times(2, sharingtest.Ask("main", 1000, 10))
	if _, reason := mps.New().Fit(&v, &req); reason != sharing.OneDevicePerContainer {
		t.Errorf("two devices for one container are answered with %v", reason)
	}
	if sharing.OneDevicePerContainer.Curable() {
		t.Error("evicting others would not give it two")
	}
}
