// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"reflect"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestUsersAreWrittenWhereAPodNamesThem(t *testing.T) {
	for name, tc := range map[string]struct {
		user sharing.User
		want string
	}{
		"root":                  {sharing.KnownUser(0), `"cores":30,"user":0}`},
		"the largest one":       {sharing.KnownUser(1<<31 - 1), `"user":2147483647}`},
		"one that is not known": {sharing.User{}, `"cores":30}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := sharing.Placement{Node: "node1", Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{
				{Device: idA, Mode: sharing.MPS, Memory: sharing.GiB, Cores: 30, User: tc.user},
			}}}}
			text, err := wire.EncodePlacement(p)
			if err != nil || !strings.Contains(text, tc.want) {
				t.Fatalf("written is %s (%v)", text, err)
			}
			got, err := wire.DecodePlacement(text)
			if err != nil || got.Containers[0].Shares[0] != p.Containers[0].Shares[0] {
				t.Errorf("read is %+v (%v)", got, err)
			}
		})
	}
	for _, wrong := range []string{"-1", "2147483648", `"root"`} {
		text := `{"version":1,"node":"n","containers":[{"name":"main","kind":"app","shares":[{"uuid":"` + idA +
			`","mode":"mps","memory":1,"cores":0,"user":` + wrong + `}]}]}`
		if _, err := wire.DecodePlacement(text); err == nil || !strings.Contains(err.Error(), "user") {
			t.Errorf("user %s is answered with %v", wrong, err)
		}
	}
}

func TestADeviceSaysOnTheWireWhichNamespacesAndUsersItServes(t *testing.T) {
	for text, set := range map[string]func(*sharing.Device){
		`"oneNamespace":true`: func(d *sharing.Device) { d.OneNamespace = true },
		`"noRoot":true`:       func(d *sharing.Device) { d.NoRoot = true },
	} {
		inv := node1()
		if plain, err := wire.EncodeInventory(inv); err != nil || strings.Contains(plain, text) {
			t.Errorf("a device that says nothing is written as %s (%v)", plain, err)
		}
		set(&inv.Devices[0])
		written, err := wire.EncodeInventory(inv)
		if err != nil || !strings.Contains(written, text) {
			t.Errorf("written is %s (%v), want %s", written, err, text)
		}
		if got, err := wire.DecodeInventory(written); err != nil || !reflect.DeepEqual(got, inv) {
			t.Errorf("read is %+v (%v)", got, err)
		}
	}
}

func TestADeviceSaysOnTheWireThatItServesOneUserAtATime(t *testing.T) {
	for _, one := range []bool{true, false} {
		inv := node1()
		inv.Devices[0].Mode, inv.Devices[0].OneUser = sharing.MPS, one
		text, err := wire.EncodeInventory(inv)
		if err != nil || strings.Contains(text, `"oneUser":true`) != one {
			t.Fatalf("written is %s (%v)", text, err)
		}
		if got, err := wire.DecodeInventory(text); err != nil || got.Devices[0].OneUser != one {
			t.Errorf("read is %v (%v), want %v", got.Devices[0].OneUser, err, one)
		}
	}
}

func TestADeviceSaysOnTheWireHowMuchMemoryIsThere(t *testing.T) {
	for _, there := range []sharing.Bytes{0, 1, 80 * sharing.GiB, sharing.MaxBytes} {
		inv := node1()
		inv.Devices[0].Physical = there
		text, err := wire.EncodeInventory(inv)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := wire.DecodeInventory(text); err != nil || got.Devices[0].Physical != there {
			t.Errorf("read is %v (%v), want %v", got.Devices[0].Physical, err, there)
		}
	}
	if _, err := wire.DecodeInventory(`{"version":1,"node":"n","devices":[{"uuid":"GPU-0","index":0,"memory":1,"physical":-1,"cores":100,"maxShares":1,"healthy":true,"mode":"mps"}]}`); err == nil {
		t.Error("less memory than none is read")
	}
}

func TestADeviceSaysOnTheWireThatItIsVirtualAndWhetherItIsLicensed(t *testing.T) {
	for licence, want := range map[sharing.Licence]string{
		sharing.LicenceUnknown: `"virtual":true,"mode"`, sharing.LicenceValid: `"virtual":true,"licence":"valid"`, sharing.LicenceMissing: `"virtual":true,"licence":"missing"`,
	} {
		inv := node1()
		inv.Devices[0].Virtual, inv.Devices[0].Licence = true, licence
		text, err := wire.EncodeInventory(inv)
		if err != nil || !strings.Contains(text, want) {
			t.Fatalf("written is %s (%v), want %s", text, err, want)
		}
		if got, err := wire.DecodeInventory(text); err != nil || !reflect.DeepEqual(got, inv) {
			t.Errorf("read is %+v (%v)", got, err)
		}
	}
	inv := node1()
	inv.Devices[0].Licence = sharing.LicenceMissing // of a device that needs none
	if text, err := wire.EncodeInventory(inv); err != nil || strings.Contains(text, "licence") || strings.Contains(text, "virtual") {
		t.Errorf("written is %s (%v)", text, err)
	}
}

// What a later version says of a licence is no reason to give up the node.
func TestAnUnknownWordOfALicenceIsReadAsNone(t *testing.T) {
	const device = `{"version":1,"node":"n","devices":[{"uuid":"GPU-0","index":0,"memory":1,"cores":100,"maxShares":1,"healthy":true,"mode":"mps"`
	for text, want := range map[string]sharing.Device{
		`,"virtual":true,"licence":"borrowed"`: {Virtual: true},
		`,"virtual":true`:                      {Virtual: true},
		`,"virtual":true,"licence":"missing"`:  {Virtual: true, Licence: sharing.LicenceMissing},
		`,"licence":"missing"`:                 {},
		`,"virtual":false`:                     {},
	} {
		got, err := wire.DecodeInventory(device + text + "}]}")
		if err != nil || got.Devices[0].Virtual != want.Virtual || got.Devices[0].Licence != want.Licence {
			t.Errorf("%s: %+v (%v)", text, got, err)
		}
	}
	for _, wrong := range []string{`,"virtual":1`, `,"licence":true`, `,"licence":"a\nb"`, `,"virtual":null`} {
		if _, err := wire.DecodeInventory(device + wrong + "}]}"); err == nil {
			t.Errorf("%s is read", wrong)
		}
	}
}
