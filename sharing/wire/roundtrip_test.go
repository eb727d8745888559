// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"reflect"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestTheInventoryComesBackAsItWas(t *testing.T) {
	text, err := wire.EncodeInventory(node1())
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodeInventory(text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, node1()) {
		t.Errorf("got  %+v\nwant %+v", got, node1())
	}
}

func TestThePlacementComesBackAsItWas(t *testing.T) {
	text, err := wire.EncodePlacement(pod1())
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodePlacement(text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, pod1()) {
		t.Errorf("got  %+v\nwant %+v", got, pod1())
	}
}

func TestEncodingTwiceGivesTheSameText(t *testing.T) {
	for range 20 {
		a, _ := wire.EncodeInventory(node1())
		b, _ := wire.EncodeInventory(node1())
		c, _ := wire.EncodePlacement(pod1())
		d, _ := wire.EncodePlacement(pod1())
		if a != b || c != d || a == "" || c == "" {
			t.Fatal("texts of one value differ")
		}
	}
}

func TestAnInventoryInAnyOrderIsWrittenByIndexAndLeftAlone(t *testing.T) {
	inv := node1()
	inv.Devices[0], inv.Devices[2] = inv.Devices[2], inv.Devices[0]
	text, err := wire.EncodeInventory(inv)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := wire.EncodeInventory(node1())
	if text != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
	if wire.EncodeRegister(inv, 1) != wire.EncodeRegister(node1(), 1) {
		t.Error("the register text depends on the order of the devices")
	}
	if inv.Devices[0].ID != idC {
		t.Error("encoding sorted the caller's devices")
	}
}

func TestWhatAPodIsGivenComesBackFromItsAnnotations(t *testing.T) {
	inv := node1()
	a, err := wire.PlacementAnnotations(pod1(), 1, 1700000000)
	if err != nil {
		t.Fatal(err)
	}
	got, found, err := wire.ReadPlacement(a, nil, &inv, 1)
	if err != nil || !found || !reflect.DeepEqual(got, pod1()) {
		t.Errorf("got %+v, %v, %v", got, found, err)
	}
	n, err := wire.NodeAnnotations(node1(), 1)
	if err != nil {
		t.Fatal(err)
	}
	back, found, err := wire.ReadNode(n, "node1", 1)
	if err != nil || !found || !reflect.DeepEqual(back, node1()) {
		t.Errorf("got %+v, %v, %v", back, found, err)
	}
}

func TestAnEmptyNodeAndAPodWithoutSharesAreValues(t *testing.T) {
	text, err := wire.EncodeInventory(sharing.Inventory{Node: "bare"})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"version":1,"node":"bare","devices":[]}`; text != want {
		t.Errorf("got %s want %s", text, want)
	}
	if inv, err := wire.DecodeInventory(text); err != nil || len(inv.Devices) != 0 {
		t.Errorf("got %+v, %v", inv, err)
	}
	if inv, err := wire.DecodeRegister("", 1); err != nil || len(inv.Devices) != 0 {
		t.Errorf("got %+v, %v", inv, err)
	}
}
