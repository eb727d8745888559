// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
)

// calls are every call about partitions, on one device.
func calls(d *Driver, id sharing.DeviceID, uuid string) map[string]error {
	all := map[string]error{}
	_, _, all["MIGMode"] = d.MIGMode(id)
	_, all["Resetless"] = d.Resetless(id)
	all["SetMIGMode"] = d.SetMIGMode(id, true)
	_, all["Instances"] = d.Instances(id)
	_, all["CreateGPUInstance"] = d.CreateGPUInstance(id, "1g.10gb", 6)
	_, all["CreateComputeInstance"] = d.CreateComputeInstance(id, 1)
	all["DestroyComputeInstance"] = d.DestroyComputeInstance(id, 1, 0)
	all["DestroyGPUInstance"] = d.DestroyGPUInstance(id, 1)
	_, all["Processes"] = d.Processes(id, 1)
	_, all["MIGDevice"] = d.MIGDevice(uuid)
	return all
}

// cut is a driver with one partition.
func cut(t *testing.T) (*Driver, sharing.DeviceID, string) {
	t.Helper()
	d := New(A100(0), T4(1))
	if err := d.Open(); err != nil {
		t.Fatal(err)
	}
	id := A100(0).UUID
	d.Switch(id, true)
	gi, err := d.CreateGPUInstance(id, "3g.40gb", 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.CreateComputeInstance(id, gi)
	if err != nil {
		t.Fatal(err)
	}
	return d, id, c.UUID
}

func TestPartitionsAnswerOnlyWhileTheDriverReachesTheDevice(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*Driver)
		want  error
	}{
		"a device that is off the bus":   {func(d *Driver) { d.Lose(0) }, driver.ErrLost},
		"a driver that was taken away":   {func(d *Driver) { d.Unload() }, driver.ErrNoDriver},
		"a device that is not installed": {func(d *Driver) { d.facts[0].UUID = "GPU-other" }, driver.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			d, id, uuid := cut(t)
			tc.spoil(d)
			for call, err := range calls(d, id, uuid) {
				if !errors.Is(err, tc.want) {
					t.Errorf("%s answers %v, want %v", call, err, tc.want)
				}
			}
		})
	}
}

func TestPartitionsAnswerBetweenACloseAndTheNextOpen(t *testing.T) {
	d, id, uuid := cut(t)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for call, err := range calls(d, id, uuid) {
		if errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s answers %v", call, err)
		}
	}
}

func TestFactsShowTheModeAsItIs(t *testing.T) {
	d, _, _ := cut(t)
	devices, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		facts, err := devices[i].Facts()
		if err != nil || facts.MIG.Enabled != want {
			t.Errorf("device %d is partitioned %v, %v", i, facts.MIG.Enabled, err)
		}
	}
	if _, _, err := d.MIGMode(T4(1).UUID); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a T4 answers %v", err)
	}
}
