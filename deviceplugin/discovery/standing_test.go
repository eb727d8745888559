// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestADeviceIsOfferedOnlyInTheModeItWasBroughtInto(t *testing.T) {
	mode := sharing.HAMiCore
	s := Settings{
		Device:   func(*Found) Offer { return Offer{Mode: mode, MaxShares: 2} },
		Switches: func(m sharing.Mode) bool { return m == sharing.MIG || m == sharing.MPS },
	}
	d := drivertest.New(drivertest.A100(0))
	_ = d.Open()
	found := scan(t, d)
	id := found[0].UUID
	b := NewBoard("n", s)
	b.SetFound(found)
	steps := []struct {
		name string
		do   func()
		why  string
	}{
		{"before anybody looked", func() {}, "not been brought into mode hami-core yet"},
		{"ready", func() { b.SetStanding(id, Standing{Mode: sharing.HAMiCore}) }, ""},
		{"given another mode", func() { mode = sharing.MPS; b.SetSettings(s) }, "not been brought into mode mps yet"},
		{"on its way", func() { b.SetStanding(id, Standing{Why: "default/p\nholds it"}) }, "default/p holds it"},
		{"broken as well", func() { b.SetSick(map[sharing.DeviceID]string{id: "XID 79"}) }, "XID 79"},
		{"broken in another way", func() { b.SetSick(map[sharing.DeviceID]string{id: "lost"}) }, "XID 79"},
		{"well again", func() { b.SetSick(nil) }, "default/p holds it"},
		{"arrived", func() { b.SetStanding(id, Standing{Mode: sharing.MPS}) }, ""},
		{"given the old mode back", func() { mode = sharing.HAMiCore; b.SetSettings(s) }, "not been brought into mode hami-core yet"},
	}
	for _, step := range steps {
		step.do()
		inv, _ := b.Inventory()
		got := inv.Devices[0]
		if got.Mode != mode || got.Healthy != (step.why == "") || !strings.Contains(got.Reason, step.why) {
			t.Errorf("%s: mode %s, healthy %v because %q; want %q", step.name, got.Mode, got.Healthy, got.Reason, step.why)
		}
		working, _ := b.Working()
		if w := working.Devices[0]; w.Healthy != !strings.Contains(step.why, "XID") || w.Healthy != (len(b.Movable()) == 1) {
			t.Errorf("%s: works %v, movable %v", step.name, w.Healthy, b.Movable())
		}
		if got.Changing != (!got.Healthy && !strings.Contains(step.why, "XID")) {
			t.Errorf("%s: changing %v", step.name, got.Changing)
		}
		if _, err := wire.EncodeInventory(inv); err != nil {
			t.Errorf("%s: cannot be published: %v", step.name, err)
		}
	}
}

func TestSettingsThatAreNotTheAdministratorsMoveNoDeviceAndOfferNone(t *testing.T) {
	s := Settings{
		Device:   func(*Found) Offer { return Offer{Mode: sharing.MPS, MaxShares: 2} },
		Switches: func(sharing.Mode) bool { return true },
		Serves:   func(m sharing.Mode) bool { return m != sharing.MPS }, // by default it would be unfit
		Hold:     "the ConfigMap cannot be read",
	}
	d := drivertest.New(drivertest.A100(0))
	_ = d.Open()
	b := NewBoard("n", s)
	b.SetFound(scan(t, d))
	b.SetStanding(drivertest.A100(0).UUID, Standing{Mode: sharing.MPS})
	inv, _ := b.Inventory()
	if got := inv.Devices[0]; got.Healthy || got.Changing || got.Reason != s.Hold || b.Hold() != s.Hold {
		t.Errorf("published %+v", got)
	}
	working, _ := b.Working()
	usable, _ := b.Usable()
	if len(b.Movable()) != 0 || len(b.Unfit()) != 0 || !working.Devices[0].Healthy || !usable.Devices[0].Healthy {
		t.Errorf("movable %v, unfit %v, works %v, usable %v", b.Movable(), b.Unfit(), working.Devices[0].Healthy, usable.Devices[0].Healthy)
	}
	s.Hold, s.Serves = "", nil
	b.SetSettings(s)
	if inv, _ := b.Inventory(); !inv.Devices[0].Healthy || len(b.Movable()) != 1 {
		t.Errorf("when they are known: %+v, movable %v", inv.Devices[0], b.Movable())
	}
}

func TestPartitioningThatIsOnIsNoMistakeWhereItCanBeSwitchedOff(t *testing.T) {
	facts := drivertest.A100(0)
	facts.MIG.Enabled = true
	d := drivertest.New(facts)
	_ = d.Open()
	b := NewBoard("n", Settings{
		Device:   func(*Found) Offer { return Offer{Mode: sharing.HAMiCore} },
		Switches: func(m sharing.Mode) bool { return m == sharing.MIG },
	})
	b.SetFound(scan(t, d))
	if len(b.Movable()) != 1 || len(b.Unfit()) != 0 {
		t.Errorf("movable %v, unfit %v", b.Movable(), b.Unfit())
	}
}
