// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"reflect"
	"testing"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/node"
)

// swapped are two devices whose driver index is not their PCI order, and a third.
func swapped() *drivertest.Driver {
	a, b := drivertest.A100(0), drivertest.A100(1)
	a.PCI, b.PCI = b.PCI, a.PCI
	d := drivertest.New(a, b, drivertest.T4(2))
	_ = d.Open()
	return d
}

func scan(t *testing.T, d driver.Driver) []node.Facts {
	t.Helper()
	found, err := driver.Scan(d)
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
	found, err := driver.Scan(d)
	if err == nil || len(found) != 2 || found[0].Index != 0 || found[1].Index != 2 {
		t.Errorf("found %+v, %v", found, err)
	}
}
