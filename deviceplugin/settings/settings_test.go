// SPDX-License-Identifier: Apache-2.0

package settings

import (
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
