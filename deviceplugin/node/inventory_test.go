// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// byIndex offers devices by their index; without an entry as they are.
type byIndex map[int]node.Offer

func (b byIndex) Offer(f *node.Facts) node.Offer {
	if o, ok := b[f.Index]; ok {
		return o
	}
	return node.Offer{Mode: sharing.HAMiCore, MemoryScaling: 1, CoreScaling: 1, MaxShares: 10}
}

// swapped is the scan of two devices whose driver index is not their PCI order, and
// of a third.
func swapped(t *testing.T) []node.Facts {
	t.Helper()
	a, b := drivertest.A100(0), drivertest.A100(1)
	a.PCI, b.PCI = b.PCI, a.PCI
	return scanned(t, a, b, drivertest.T4(2))
}

func scanned(t *testing.T, facts ...node.Facts) []node.Facts {
	t.Helper()
	d := drivertest.New(facts...)
	_ = d.Open()
	found, err := driver.Scan(d)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// at is the state after some events, under settings.
func at(powers node.Powers, settings node.Settings, events ...node.Event) node.State {
	s := node.Reduce(node.New(node.Config{Node: "n", Powers: powers}), node.Configured{Settings: settings})
	for _, e := range events {
		s = node.Reduce(s, e)
	}
	return s
}

func TestInventoryIsInIndexOrderAndWhole(t *testing.T) {
	geometries := []sharing.Geometry{{Name: "group1"}}
	as := node.Offer{Mode: sharing.HAMiCore, MemoryScaling: 1, CoreScaling: 1, MaxShares: 10, Geometries: geometries}
	inv := at(node.Powers{}, node.Settings{Offers: byIndex{0: as, 1: as}, GeometryHash: "h"}, node.Scanned{Devices: swapped(t)}).Inventory()
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
	if got := node.ByPCI(inv.Devices); !reflect.DeepEqual(got, []int{1, 0, 2}) {
		t.Errorf("the order of CUDA is %v", got)
	}
}

func TestSettingsShapeWhatIsOffered(t *testing.T) {
	found := swapped(t)
	s := at(node.Powers{}, node.Settings{Offers: byIndex{
		0: {Hidden: true}, 1: {Mode: sharing.TimeSlicing, MemoryScaling: 1.5, CoreScaling: 2, Given: true},
	}}, node.Scanned{Devices: found}, node.Silent{Device: found[2].UUID, Why: "lost"})
	inv := s.Inventory()
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
	if len(found[0].Links) != 2 {
		t.Error("what the driver said was changed")
	}
	if inv.Devices[1].Healthy {
		t.Error("a broken device is published as healthy")
	}
	if !s.IsModeGiven(d.ID) || s.IsModeGiven(found[2].UUID) || s.IsModeGiven("GPU-none") {
		t.Error("it is not told which device was given a mode")
	}
}

func TestScalingOffersAMultipleInWholeUnits(t *testing.T) {
	const gib = sharing.GiB
	for says, c := range map[string]struct {
		has           sharing.Bytes
		memory, cores float64
		offers        sharing.Bytes
		percent       sharing.Percent
	}{
		"as it is":                        {gib, 1, 1, gib, 100},
		"a part":                          {gib, 0.5, 0.25, gib / 2, 25},
		"whole MiB and percent":           {3 * sharing.MiB, 0.5, 0.126, sharing.MiB, 13},
		"what the driver has beside them": {gib + 5, 1, 1, gib, 100},
		"nothing said":                    {gib, 0, 0, gib, 100},
		"less than nothing":               {gib, -1, -1, gib, 100},
		"no number":                       {gib, math.NaN(), math.NaN(), gib, 100},
		"without end":                     {gib, math.Inf(1), math.Inf(1), gib, 100},
		"a thousand times":                {gib, 1000, 1000, 1000 * gib, 100_000},
		"more than that of compute":       {gib, 1, 1000.01, gib, 100},
		"more memory than there can be":   {gib, 1e300, 1, sharing.MaxBytes, 100},
	} {
		o := node.Offer{Mode: sharing.HAMiCore, MemoryScaling: c.memory, CoreScaling: c.cores}
		s := at(node.Powers{}, node.Settings{Offers: byIndex{0: o}}, node.Scanned{Devices: []node.Facts{{UUID: "GPU-a", Memory: c.has}}})
		if d := s.Inventory().Devices[0]; d.Memory != c.offers || d.Cores != c.percent {
			t.Errorf("%s: %v and %d%%, want %v and %d%%", says, d.Memory, d.Cores, c.offers, c.percent)
		}
	}
}

func TestADeviceThatCannotBeUsedInItsModeIsNotOffered(t *testing.T) {
	partitioned := drivertest.A100(0)
	partitioned.MIG.Enabled = true
	most := []sharing.Mode{sharing.HAMiCore, sharing.MIG, sharing.TimeSlicing}
	cases := map[string]struct {
		facts    node.Facts
		mode     sharing.Mode
		serves   []sharing.Mode
		switched []sharing.Mode
		why      string
	}{
		"hami-core on an A100":                      {facts: drivertest.A100(0), mode: sharing.HAMiCore},
		"mig on an A100":                            {facts: drivertest.A100(0), mode: sharing.MIG},
		"mig on an A100 that is switched to it":     {facts: partitioned, mode: sharing.MIG},
		"hami-core on one that is switched":         {facts: partitioned, mode: sharing.HAMiCore, why: "nvidia-smi -mig 0"},
		"which is no mistake if it is switched off": {facts: partitioned, mode: sharing.HAMiCore, switched: []sharing.Mode{sharing.MIG}},
		"mig on a T4":                               {facts: drivertest.T4(0), mode: sharing.MIG, why: "cannot be partitioned"},
		"a mode without a preparer on this node":    {facts: drivertest.A100(0), mode: sharing.MPS, serves: most, why: "cannot prepare containers in mode mps: its library is cut"},
		"mps where it holds no limit":               {facts: node.Facts{Compute: 6}, mode: sharing.MPS, why: "older than Volta"},
		"mps on the first that does":                {facts: node.Facts{Compute: 7}, mode: sharing.MPS},
		"mps where nobody says how old it is":       {facts: node.Facts{}, mode: sharing.MPS},
		"mig on a vGPU":                             {facts: card("GPU-0", 0, "vGPU", "1"), mode: sharing.MIG, why: "cut it on the host"},
		"mig on a vGPU of a partition":              {facts: card("GPU-0", 0, "MIG-vGPU", "1"), mode: sharing.MIG, why: "cut it on the host"},
		"hami-core on a vGPU":                       {facts: card("GPU-0", 0, "vGPU", "1"), mode: sharing.HAMiCore},
		"time-slicing on a vGPU":                    {facts: card("GPU-0", 0, "vGPU", "1"), mode: sharing.TimeSlicing},
		"mps on a vGPU, as its compute mode is set": {facts: card("GPU-0", 0, "vGPU", "1"), mode: sharing.MPS},
		"which nothing here can switch off on a vGPU": {
			facts: card("GPU-0", 0, "MIG-vGPU", "1"), mode: sharing.HAMiCore, switched: []sharing.Mode{sharing.MIG}, why: "have its host give this machine one without",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := at(node.Powers{Serves: tc.serves, Switched: tc.switched, Unserved: map[sharing.Mode]string{sharing.MPS: "its library is cut"}}, node.Settings{Offers: byIndex{0: {Mode: tc.mode}}},
				node.Scanned{Devices: []node.Facts{tc.facts}})
			d := s.Inventory().Devices[0]
			c, _ := s.Condition(tc.facts.UUID)
			if d.Healthy != (tc.why == "") || (c.Kind == node.Unsupported) != (tc.why != "") || !strings.Contains(d.Reason, tc.why) {
				t.Errorf("healthy %v, %+v, want %q", d.Healthy, c, tc.why)
			}
		})
	}
}

func TestAModeThatComesToBeServedIsOfferedAndNoOther(t *testing.T) {
	settings := node.Settings{Offers: byIndex{0: {Mode: sharing.MPS}, 1: {Mode: sharing.HAMiCore}, 2: {Mode: sharing.TimeSlicing}}}
	powers := node.Powers{Serves: []sharing.Mode{sharing.MIG}, Unserved: map[sharing.Mode]string{sharing.MPS: "cut", sharing.HAMiCore: "cut"}}
	found := []node.Facts{drivertest.A100(0), drivertest.A100(1), drivertest.A100(2)}
	for i := range found {
		found[i].Index = i
	}
	before := at(powers, settings, node.Scanned{Devices: found})
	healthy := func(s node.State) (out string) {
		for _, d := range s.Inventory().Devices {
			out += fmt.Sprint(d.Healthy, " ")
		}
		return out
	}
	after := before
	for _, step := range []struct {
		mode sharing.Mode
		want string
	}{{sharing.TimeSlicing, "false false false "}, {sharing.MPS, "true false false "}, {sharing.MPS, "true false false "}, {sharing.HAMiCore, "true true false "}} {
		if after = node.Reduce(after, node.ModeServed{Mode: step.mode}); healthy(after) != step.want {
			t.Errorf("after %s is served the devices are healthy: %s, want %s", step.mode, healthy(after), step.want)
		}
	}
	if got := healthy(before); got != "false false false " || len(powers.Unserved) != 2 || len(powers.Serves) != 1 {
		t.Errorf("what was before was changed: %s, %+v", got, powers)
	}
}

func TestADeviceThatVanishesIsStillFoundByItsNumber(t *testing.T) {
	found := swapped(t)
	s := at(node.Powers{}, node.Settings{Offers: byIndex{}}, node.Scanned{Devices: found}, node.Scanned{Devices: found[1:]})
	if f, ok := s.Facts(found[0].UUID); !ok || f.Minor != found[0].Minor {
		t.Errorf("its node is %d, %v", f.Minor, ok)
	}
	other := found[0]
	other.UUID = "GPU-new"
	s = node.Reduce(s, node.Scanned{Devices: []node.Facts{other, found[1], found[2]}})
	if _, ok := s.Facts(found[0].UUID); ok || len(s.Inventory().Devices) != 3 {
		t.Errorf("after it was replaced: %v, %+v", ok, s.Inventory().Devices)
	}
}

func TestTheNUMANodeOfTheMachinesDevices(t *testing.T) {
	for name, c := range map[string]struct {
		at   []int
		want int
	}{
		"no devices":               {nil, -1},
		"one device":               {[]int{1}, 1},
		"all at the first node":    {[]int{0, 0, 0}, 0},
		"two nodes":                {[]int{0, 0, 1}, -1},
		"two nodes, the other way": {[]int{1, 0, 0}, -1},
		"one unknown":              {[]int{0, -1}, -1},
		"all unknown":              {[]int{-1, -1}, -1},
	} {
		var found []node.Facts
		for i, numa := range c.at {
			f := card(fmt.Sprintf("GPU-%d", i), i, "T4", fmt.Sprintf("%02d", i))
			f.NUMA = numa
			found = append(found, f)
		}
		// Hidden devices count: an administrator may offer them at any moment.
		s := at(node.Powers{}, node.Settings{Offers: byIndex{0: {Hidden: true}, 1: {Mode: sharing.HAMiCore}, 2: {Hidden: true}}}, node.Scanned{Devices: found})
		if got := s.NUMA(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

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
		f := node.Facts{UUID: "GPU-a", Memory: sharing.GiB, Compute: c.compute, CUDA: c.cuda}
		s := at(node.Powers{}, node.Settings{Offers: byIndex{0: {Mode: c.mode, MaxClients: c.lowered}}}, node.Scanned{Devices: []node.Facts{f}})
		if got := s.Inventory().Devices[0].MaxClients; got != c.want {
			t.Errorf("%s: %d clients, want %d", name, got, c.want)
		}
	}
}

func TestADeviceInModeMPSSaysWhomItServes(t *testing.T) {
	facts := node.Scanned{Devices: []node.Facts{{UUID: "GPU-a", Memory: sharing.GiB}}}
	for _, who := range []node.Tenants{{}, {OneUser: true}, {OneNamespace: true}, {NoRoot: true}, {OneUser: true, OneNamespace: true, NoRoot: true}} {
		for _, mode := range []sharing.Mode{sharing.MPS, sharing.HAMiCore, sharing.TimeSlicing} {
			s := at(node.Powers{MPS: who}, node.Settings{Offers: byIndex{0: {Mode: mode}}}, facts)
			d, want := s.Inventory().Devices[0], who
			if mode != sharing.MPS {
				want = node.Tenants{}
			}
			if got := (node.Tenants{OneUser: d.OneUser, OneNamespace: d.OneNamespace, NoRoot: d.NoRoot}); got != want {
				t.Errorf("mode %s: it says %+v, want %+v", mode, got, want)
			}
		}
	}
}

// What the node publishes can be written down whatever the reasons are, and what is
// withheld changes nothing of what is true.
func TestReasonsArePublishedInOneLegibleLine(t *testing.T) {
	found := swapped(t)
	s := at(node.Powers{}, node.Settings{Offers: byIndex{}}, node.Scanned{Devices: found},
		node.Silent{Device: found[0].UUID, Why: "default/p\nholds it\xff" + strings.Repeat("x", 400)})
	inv := s.Published()
	d, _ := inv.Device(found[0].UUID)
	if d.Healthy || strings.ContainsAny(d.Reason, "\n\xff") || len(d.Reason) > 310 || !strings.HasPrefix(d.Reason, "default/p holds it?") {
		t.Errorf("published %+v", d)
	}
	if _, err := wire.EncodeInventory(inv); err != nil {
		t.Error(err)
	}
	if other, _ := inv.Device(found[1].UUID); other.Healthy || !strings.Contains(other.Reason, "kubelet does not know") {
		t.Errorf("before the kubelet knows the node it publishes %+v", other)
	}
	longest := strings.Repeat("x", 300)
	brief := node.Reduce(s, node.Silent{Device: found[1].UUID, Why: longest}).Inventory()
	if d, _ := brief.Device(found[1].UUID); d.Reason != longest {
		t.Errorf("a reason that is short enough is published as %q", d.Reason)
	}
	now := s.Inventory()
	if other, _ := now.Device(found[1].UUID); !other.Healthy {
		t.Error("what is withheld is taken for broken")
	}
}
