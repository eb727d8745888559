// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

const (
	inMIG = `{"nodeconfig":[{"name":"n","operatingmode":"mig"}]}`
	typo  = `{"nodeconfig":[{"name":"n","operatingmode":"MIG"}]}`
)

// cutBefore is a machine whose first card a process before this one had in mode mig,
// with an instance in it.
func cutBefore(p *program) {
	hopperAndAmpere(p)
	first := drivertest.A100(0).UUID
	p.driver.Switch(first, true)
	if err := p.driver.Open(); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.driver.CreateGPUInstance(first, "2g.20gb", 2); err != nil {
		p.t.Fatal(err)
	}
	mark := filepath.Join(p.dir, "state", "mig", string(first), ".entered")
	if err := os.MkdirAll(filepath.Dir(mark), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// untouched reports that the first card has its instance.
func (p *program) untouched() {
	p.t.Helper()
	first := drivertest.A100(0).UUID
	on, _, err := p.driver.MIGMode(first)
	all, listed := p.driver.Instances(first)
	if err != nil || listed != nil || !on || len(all) != 1 {
		p.t.Errorf("partitioning is on: %v, with %v (%v, %v)", on, all, err, listed)
	}
}

func TestATypoMetByANewProcessTakesNoDeviceOutOfItsMode(t *testing.T) {
	p := launch(t, cutBefore, func(p *program) { p.configure(typo) })
	p.kubelet.Await(t, "the slots, which stay", func(healthy, _, _ int) bool { return healthy == 20 })
	p.event("DeviceConfigInvalid", "operatingmode")
	p.event("DeviceConfigUnknown", "no device changes its mode or takes new pods")
	p.await("the devices", func() bool { return len(p.inventory().Devices) == 2 })
	for _, d := range p.inventory().Devices {
		if d.Healthy || d.Changing || !strings.Contains(d.Reason, "ConfigMap "+config.NodeName+" cannot be used") {
			t.Errorf("device %d is healthy %v, changing %v, reason %q", d.Index, d.Healthy, d.Changing, d.Reason)
		}
	}
	p.await("the sums, which stay, since the pods of the node are counted in them", func() bool {
		q := p.node().Status.Capacity[wire.ResourceMemory]
		return q.Value() == 2*81920
	})
	pod := p.placePart(p.inventory().Devices[0], sharing.Partition{Profile: "2g.20gb", Start: 2, Size: 2, Geometry: "group2", Position: 1})
	if _, err := p.kubelet.Begin(context.Background(), pod, "main"); err == nil || !strings.Contains(err.Error(), "no container of a new pod starts now") {
		t.Errorf("the pod is told %v", err)
	}
	p.event("DevicePrepareFailed", "no container of a new pod starts now")
	p.untouched()
	p.configure(inMIG)
	p.event("DeviceConfigUnknownResolved", "")
	p.await("the device", func() bool { d := p.inventory().Devices[0]; return d.Mode == sharing.MIG && d.Healthy })
	p.untouched()
	if _, err := p.kubelet.Begin(context.Background(), pod, "main"); err != nil {
		t.Errorf("when the ConfigMap is corrected: %v", err)
	}
	if got := p.evictions(); got != "" {
		t.Errorf("evicted: %s", got)
	}
}

func TestTheLastGoodConfigurationStaysInForceOverARestart(t *testing.T) {
	p := launch(t, cutBefore, func(p *program) {
		before := checkpoint.Configuration{Files: host.OS{}, Directory: filepath.Join(p.dir, "state", "config"), Trouble: func(err error) { t.Error(err) }}
		before.Keep(config.NodeName, live.Kept{Source: live.Source{Namespace: "kube-system", Name: config.NodeName, Version: "1"}, Text: inMIG})
		p.configure(typo)
	})
	p.event("DeviceConfigInvalid", "operatingmode")
	p.await("the device", func() bool {
		inv := p.inventory()
		return len(inv.Devices) == 2 && inv.Devices[0].Mode == sharing.MIG && inv.Devices[0].Healthy
	})
	p.untouched()
}
