// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"math"
	"reflect"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/sharing"
)

// offers every device as it is.
func offers(*Found) Offer {
	return Offer{Mode: sharing.HAMiCore, MemoryScaling: 1, CoreScaling: 1, MaxShares: 10}
}

func healthy(*Found, Offer) string { return "" }

// swapped are two devices whose driver index is not their PCI order, and a third.
func swapped() *drivertest.Driver {
	a, b := drivertest.A100(0), drivertest.A100(1)
	a.PCI, b.PCI = b.PCI, a.PCI
	d := drivertest.New(a, b, drivertest.T4(2))
	_ = d.Open()
	return d
}

func scan(t *testing.T, d driver.Driver) []Found {
	t.Helper()
	found, err := Scan(d)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestScanFindsDevicesInPCIOrderWithTheirLinks(t *testing.T) {
	found := scan(t, swapped())
	var order []int
	for _, f := range found {
		order = append(order, f.Index)
	}
	if !reflect.DeepEqual(order, []int{1, 0, 2}) {
		t.Errorf("order is %v", order)
	}
	if links := found[0].Links; len(links) != 2 || links[0].Kind != "node" || links[1].Kind != "sys" {
		t.Errorf("links are %+v", links)
	}
}

func TestADeviceThatDoesNotAnswerHidesNoOther(t *testing.T) {
	d := swapped()
	d.Lose(1)
	found, err := Scan(d)
	if err == nil || len(found) != 2 || found[0].Index != 0 || found[1].Index != 2 {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestInventoryIsInIndexOrderAndWhole(t *testing.T) {
	geometries := []sharing.Geometry{{Name: "group1"}}
	inv := Inventory("n", scan(t, swapped()), healthy, Settings{
		Device: offers, Geometries: func(string) []sharing.Geometry { return geometries }, GeometryHash: "h",
	})
	if inv.Node != "n" || inv.GeometryHash != "h" || len(inv.Devices) != 3 {
		t.Fatalf("inventory %+v", inv)
	}
	for i, d := range inv.Devices {
		if d.Index != i || !d.Healthy || d.MaxShares != 10 || d.Cores != 100 {
			t.Errorf("device %d is %+v", i, d)
		}
	}
	a100, t4 := inv.Devices[0], inv.Devices[2]
	if a100.MIG == nil || a100.MIG.Slices != 8 || len(a100.MIG.Profiles) != 6 || !reflect.DeepEqual(a100.MIG.Geometries, geometries) {
		t.Errorf("partitions are %+v", a100.MIG)
	}
	if t4.MIG != nil || t4.NUMA != -1 {
		t.Errorf("a T4 cannot be cut: %+v", t4)
	}
}

func TestSettingsShapeWhatIsOffered(t *testing.T) {
	found := scan(t, swapped())
	inv := Inventory("n", found, func(f *Found, _ Offer) string {
		if f.UUID == found[2].UUID {
			return "XID 79"
		}
		return ""
	}, Settings{Device: func(f *Found) Offer {
		switch f.Index {
		case 0:
			return Offer{Hidden: true}
		case 1:
			return Offer{Mode: sharing.TimeSlicing, MemoryScaling: 1.5, CoreScaling: 2, MaxShares: 0}
		}
		return offers(f)
	}})
	if len(inv.Devices) != 2 || inv.Devices[0].Index != 1 {
		t.Fatalf("inventory %+v", inv.Devices)
	}
	d := inv.Devices[0]
	if d.Memory != sharing.MiBs(81920*3/2) || d.Cores != 200 || d.Mode != sharing.TimeSlicing || d.MaxShares != 1 {
		t.Errorf("scaled device is %+v", d)
	}
	for _, l := range d.Links {
		if l.Peer == found[1].UUID {
			t.Error("a link to a hidden device is published")
		}
	}
	if inv.Devices[1].Healthy {
		t.Error("a broken device is published as healthy")
	}
}

func TestADeviceThatCannotBeUsedInItsModeIsNotOffered(t *testing.T) {
	partitioned := drivertest.A100(0)
	partitioned.MIG.Enabled = true
	cases := map[string]struct {
		facts  driver.Facts
		mode   sharing.Mode
		serves func(sharing.Mode) bool
		fit    bool
	}{
		"hami-core on an A100":                   {drivertest.A100(0), sharing.HAMiCore, nil, true},
		"mig on an A100":                         {drivertest.A100(0), sharing.MIG, nil, true},
		"mig on an A100 that is switched to it":  {partitioned, sharing.MIG, nil, true},
		"hami-core on one that is switched":      {partitioned, sharing.HAMiCore, nil, false},
		"mig on a T4":                            {drivertest.T4(0), sharing.MIG, nil, false},
		"a mode without a preparer on this node": {drivertest.A100(0), sharing.MPS, func(m sharing.Mode) bool { return m != sharing.MPS }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := drivertest.New(tc.facts)
			_ = d.Open()
			b := NewBoard("n", Settings{Serves: tc.serves, Device: func(*Found) Offer { return Offer{Mode: tc.mode} }})
			b.SetFound(scan(t, d))
			inv, _ := b.Inventory()
			if why := b.Unfit()[tc.facts.UUID]; inv.Devices[0].Healthy != tc.fit || (why == "") != tc.fit {
				t.Errorf("healthy %v because %q", inv.Devices[0].Healthy, why)
			}
		})
	}
}

func TestScalingNeverOverflowsAndIgnoresNonsense(t *testing.T) {
	for name, tc := range map[string]struct {
		factor float64
		want   sharing.Bytes
	}{
		"one":          {1, sharing.GiB},
		"half":         {0.5, 512 * sharing.MiB},
		"rounded down": {1.0009, 1024 * sharing.MiB},
		"zero":         {0, sharing.GiB},
		"negative":     {-2, sharing.GiB},
		"no number":    {math.NaN(), sharing.GiB},
		"infinite":     {math.Inf(1), sharing.GiB},
		"astronomical": {1e30, sharing.MaxBytes},
	} {
		if got := scaledMemory(sharing.GiB, tc.factor); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	for factor, want := range map[float64]sharing.Percent{1: 100, 1.5: 150, 0: 100, -1: 100, 5000: 100} {
		if got := scaledCores(factor); got != want {
			t.Errorf("cores at %v: %d, want %d", factor, got, want)
		}
	}
}

func TestByPCIIsTheOrderOfCUDA(t *testing.T) {
	inv := Inventory("n", scan(t, swapped()), healthy, Settings{Device: offers})
	if got := ByPCI(inv.Devices); !reflect.DeepEqual(got, []int{1, 0, 2}) {
		t.Errorf("order is %v", got)
	}
}

// drained reports whether a reader was woken, and takes the token.
func drained(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestTheBoardWakesReadersOnlyForChanges(t *testing.T) {
	b := NewBoard("n", Settings{Device: offers})
	changes, stop := b.Changes()
	if _, ready := b.Inventory(); ready || drained(changes) {
		t.Error("an empty board claims to know something")
	}
	found := scan(t, swapped())
	steps := []struct {
		name string
		do   func()
		wake bool
	}{
		{"the first scan", func() { b.SetFound(found) }, true},
		{"the same scan", func() { b.SetFound(found) }, false},
		{"a device breaks", func() { b.SetSick(map[sharing.DeviceID]string{found[0].UUID: "XID 79"}) }, true},
		{"it stays broken for another reason", func() { b.SetSick(map[sharing.DeviceID]string{found[0].UUID: "lost"}) }, false},
		{"it comes back", func() { b.SetSick(nil) }, true},
		{"settings that change nothing", func() { b.SetSettings(Settings{Device: offers}) }, false},
		{"settings that hide a device", func() {
			b.SetSettings(Settings{Device: func(f *Found) Offer { o := offers(f); o.Hidden = f.Index == 2; return o }})
		}, true},
	}
	for _, s := range steps {
		s.do()
		if got := drained(changes); got != s.wake {
			t.Errorf("%s: woken %v, want %v", s.name, got, s.wake)
		}
	}
	stop()
	b.SetSick(map[sharing.DeviceID]string{found[0].UUID: "x"})
	if drained(changes) {
		t.Error("a reader that stopped was woken")
	}
	late, _ := b.Changes()
	if !drained(late) {
		t.Error("a late reader is not told that there is something")
	}
}

func TestADeviceThatVanishesStaysOnTheBoardAsBroken(t *testing.T) {
	b := NewBoard("n", Settings{Device: offers})
	found := scan(t, swapped())
	b.SetFound(found)
	b.SetFound(found[1:])
	inv, _ := b.Inventory()
	d, ok := inv.Device(found[0].UUID)
	if !ok || d.Healthy || b.Sick()[found[0].UUID] == "" {
		t.Errorf("the device is %+v, why: %v", d, b.Sick())
	}
	if minor, ok := b.Minor(found[0].UUID); !ok || minor != found[0].Minor {
		t.Errorf("its node is %d, %v", minor, ok)
	}
	b.SetFound(found)
	inv, _ = b.Inventory()
	if d, _ := inv.Device(found[0].UUID); d == nil || !d.Healthy {
		t.Error("it did not come back")
	}
}

func TestADeviceThatWasReplacedInItsSlotIsForgotten(t *testing.T) {
	b := NewBoard("n", Settings{Device: offers})
	found := scan(t, swapped())
	b.SetFound(found)
	other := found[0]
	other.UUID = "GPU-new"
	b.SetFound([]Found{other, found[1], found[2]})
	inv, _ := b.Inventory()
	if _, old := inv.Device(found[0].UUID); old || len(inv.Devices) != 3 {
		t.Errorf("the board has %+v", inv.Devices)
	}
}
