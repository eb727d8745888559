// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
)

func TestTheInventoryListsThePartitionsThatExist(t *testing.T) {
	gpus := drivertest.New(drivertest.A100(0), drivertest.A100(1), drivertest.T4(2))
	if err := gpus.Open(); err != nil {
		t.Fatal(err)
	}
	first := drivertest.A100(0).UUID
	gpus.Switch(first, true)
	if _, err := gpus.CreateGPUInstance(first, "2g.20gb", 4); err != nil {
		t.Fatal(err)
	}
	found, err := driver.Scan(gpus)
	if err != nil {
		t.Fatal(err)
	}
	all, err := listPartitions(gpus, found)
	if err != nil || len(all) != 1 || len(all[first]) != 1 || all[first][0].Profile != "2g.20gb" || all[first][0].Start != 4 {
		t.Errorf("listed %+v, %v", all, err)
	}
	gpus.Lose(0)
	if _, err := listPartitions(gpus, found); err == nil || !strings.Contains(err.Error(), string(first)) {
		t.Errorf("of a device that is lost it says %v", err)
	}
}
