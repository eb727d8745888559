// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

func parse(t *testing.T, args ...string) error {
	t.Helper()
	o := defaultOptions()
	o.nodeName = "n"
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	return o.validateFlags()
}

func TestEveryMistakeOfTheCommandLineIsNamedAtOnce(t *testing.T) {
	err := parse(t, "--node-name=", "--cdi-dir=relative", "--driver-edits=magic", "--memory-resources=some", "--health-probe=-1s",
		"--driver-file=/only-host", "--ignore-xids=13,x",
		"--runtime-classes=*,a_b", "--mps-root=run", "--placement-keys=keys", "--mps-users=some", "--mps-compute=half", "--mps-shm-size=64", "--time-slice=brief")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--node-name", `--cdi-dir="relative"`, "nvcdi or files", "--memory-resources", "--health-probe=-1s", "HOST:CONTAINER", `"x"`, `"a_b" is not the name`, "* stands for all names",
		`--mps-root="run"`, "want one or any", "want percentage or partition", `--mps-shm-size="64"`, "want one of default, short, medium, long"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %s:\n%v", want, err)
		}
	}
}

func TestGoodCommandLines(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing":      {},
		"files":        {"--driver-edits=files", "--driver-file=/a:/b", "--driver-file=/c:/d:rw", "--dev-root=/run/dev"},
		"all ignored":  {"--ignore-xids=all"},
		"more shm":     {"--mps-shm-size=2Gi"},
		"any class":    {"--runtime-classes=*", "--user-namespaces"},
		"no class":     {"--runtime-classes="},
		"old and slow": {"--memory-resources=device-plugin", "--health-probe=30s"},
	} {
		if err := parse(t, args...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheToolkitNeedsADirectoryOfDevicesItKnows(t *testing.T) {
	if err := parse(t, "--dev-root=/run/devices"); err == nil || !strings.Contains(err.Error(), "must be dev") {
		t.Errorf("the error is %v", err)
	}
}

func TestFilesNeedTheirMode(t *testing.T) {
	if err := parse(t, "--driver-file=/a:/b"); err == nil || !strings.Contains(err.Error(), "--driver-edits=files") {
		t.Errorf("the error is %v", err)
	}
}

// offered is what a node offers under a configuration.
func offered(name string, v live.Value, found []node.Facts) sharing.Inventory {
	a := agent.New(node.Config{Node: name}, nil)
	a.Send(agent.SettingsEvent(v, name))
	a.Send(node.Scanned{Devices: found})
	return a.State().Inventory()
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
	got := agent.TermsOf(device, v.Node.For("n"))
	if all := (modes.Interception{ContextFree: true, KeepDeepbind: true, StandIn: true, Oversubscribe: true}); got.Interception != all {
		t.Errorf("libvgpu.so is told %+v", got.Interception)
	}
	if got := agent.TermsOf(config.DefaultDevice(), config.NodeSettings{}); got.Interception != (modes.Interception{}) {
		t.Errorf("by default libvgpu.so is told %+v", got.Interception)
	}
	scaledNode := config.NodeSettings{Devices: []config.DeviceRule{{Index: 0, MemoryScaling: 1.1}}}
	if !agent.TermsOf(config.DefaultDevice(), scaledNode).Interception.Oversubscribe {
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
		if got := agent.TermsOf(device, config.NodeSettings{}).Policy; got != want {
			t.Errorf("with %s the policy is %q, want %q", text, got, want)
		}
	}
}
