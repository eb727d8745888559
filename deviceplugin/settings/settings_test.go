// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"reflect"
	"strings"
	"testing"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// offered is what a node offers under a configuration.
func offered(name string, v live.Value, found []node.Facts) sharing.Inventory {
	s := node.Reduce(node.New(node.Config{Node: name}), Event(v, name))
	return node.Reduce(s, node.Scanned{Devices: found}).Inventory()
}

func TestTheConfigurationReachesDevicesAndContainers(t *testing.T) {
	device, problems := config.LoadDevice([]byte("nvidia:\n  deviceSplitCount: 4\n  deviceMemoryScaling: 1.5\n  disableCoreLimit: true\n  gpuMemoryFactor: 8\n" +
		"  contextMemory: free\n  deepbind: keep\n  standIn: true\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	nodes, problems := config.LoadNode([]byte(`{"nodeconfig":[{"name":"n","operatingmode":"mig","filterdevices":{"uuid":[],"index":[1]}}]}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	gpus := drivertest.New(drivertest.A100(0), drivertest.A100(1))
	if err := gpus.Open(); err != nil {
		t.Fatal(err)
	}
	found, err := driver.Scan(gpus)
	if err != nil {
		t.Fatal(err)
	}
	v := live.Value{Device: device, Node: nodes}
	inv := offered("n", v, found)
	if len(inv.Devices) != 1 {
		t.Fatalf("devices are %+v, want that index 1 is hidden", inv.Devices)
	}
	d := inv.Devices[0]
	if d.Mode != sharing.MIG || d.MaxShares != 4 || d.Memory != sharing.MiBs(81920) || len(d.MIG.Geometries) == 0 || inv.GeometryHash == "" {
		t.Errorf("the device is %+v", d)
	}
	if other := offered("m", v, found); other.Devices[0].Mode != sharing.HAMiCore || other.Devices[0].Memory != sharing.MiBs(81920*3/2) {
		t.Errorf("another node got the settings of this one: %+v", other.Devices[0])
	}
	got := termsOf(device, v.Node.For("n"))
	if all := (modes.Interception{ContextFree: true, KeepDeepbind: true, StandIn: true, Oversubscribe: true}); got.Interception != all {
		t.Errorf("libvgpu.so is told %+v", got.Interception)
	}
	if got := termsOf(config.DefaultDevice(), config.NodeSettings{}); got.Interception != (modes.Interception{}) {
		t.Errorf("by default libvgpu.so is told %+v", got.Interception)
	}
	scaledNode := config.NodeSettings{Devices: []config.DeviceRule{{Index: 0, MemoryScaling: 1.1}}}
	if !termsOf(config.DefaultDevice(), scaledNode).Interception.Oversubscribe {
		t.Error("a device with more memory than it has does not take it from the host")
	}
	if got.Factor != 8 || got.Policy != "disable" || got.Names.Number == "" {
		t.Errorf("terms are %+v", got)
	}
}

func TestTheConfigurationSaysWhetherIdleComputeIsBorrowed(t *testing.T) {
	for text, want := range map[string]string{
		"nvidia: {}":                                           "",
		"nvidia: {idleCompute: borrow}":                        "",
		"nvidia: {idleCompute: leave}":                         "force",
		"nvidia: {disableCoreLimit: true, idleCompute: leave}": "disable",
	} {
		device, problems := config.LoadDevice([]byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if got := termsOf(device, config.NodeSettings{}).Policy; got != want {
			t.Errorf("with %s the policy is %q, want %q", text, got, want)
		}
	}
}

// A device may be swapped for another one, or get another index, under the same settings.
func TestAnOfferIsThatOfTheDeviceHoweverOftenItIsAsked(t *testing.T) {
	v := live.Value{Device: config.DefaultDevice()}
	nodes, problems := config.LoadNode([]byte(`{"nodeconfig":[{"name":"n","filterdevices":{"uuid":["GPU-b"],"index":[1]},"devices":[{"model":"H100","mode":"mig"}]}]}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	v.Node = nodes
	offers := func() node.Offers { return Event(v, "n").(node.Configured).Settings.Offers }
	one := offers()
	for range 2 {
		for _, id := range []sharing.DeviceID{"GPU-a", "GPU-b"} {
			for index := range 2 {
				for _, model := range []string{"NVIDIA A30", "NVIDIA H100 80GB HBM3"} {
					f := node.Facts{UUID: id, Index: index, Model: model}
					got, fresh := one.Offer(&f), offers().Offer(&f)
					if !reflect.DeepEqual(got, fresh) || got.Hidden != (id == "GPU-b" || index == 1) || (got.Mode == sharing.MIG) != strings.Contains(model, "H100") {
						t.Errorf("%+v is offered as %+v, at first as %+v", f, got, fresh)
					}
				}
			}
		}
	}
}

func BenchmarkOffer(b *testing.B) {
	o := Event(live.Value{Device: config.DefaultDevice()}, "n").(node.Configured).Settings.Offers
	f := drivertest.A100(0)
	for b.Loop() {
		o.Offer(&f)
	}
}
