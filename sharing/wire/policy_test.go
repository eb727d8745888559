// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"reflect"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestThePolicyOfPartitionsComesBackAsItWas(t *testing.T) {
	for _, policy := range sharing.PartitionPolicies() {
		inv := node1()
		inv.Devices[1].MIG.Policy = policy
		text, err := wire.EncodeInventory(inv)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, `"policy"`) != (policy != sharing.FirstMatch) {
			t.Errorf("%v: %s", policy, text)
		}
		if got, err := wire.DecodeInventory(text); err != nil || !reflect.DeepEqual(got, inv) {
			t.Errorf("%v: got %+v, %v", policy, got, err)
		}
	}
}

// A node that never heard of policies publishes none; it means what it always
// meant. Written out it means the same.
func TestAnInventoryWithoutAPolicyIsFirstMatch(t *testing.T) {
	text, err := wire.EncodeInventory(node1())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{text, edited(t, text, edit{`"slices":8`, `"slices":8,"policy":"first-match"`})} {
		if got, err := wire.DecodeInventory(text); err != nil || !reflect.DeepEqual(got, node1()) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

func TestAPolicyThatDoesNotExistIsNotWritten(t *testing.T) {
	inv := node1()
	inv.Devices[1].MIG.Policy = 7
	if text, err := wire.EncodeInventory(inv); err == nil {
		t.Errorf("written as %s", text)
	}
}

// In-tree: the memory in an entry for a partition is what was asked for, and a
// reader that adds it up runs short of what is really taken.
func TestDefectTheMemoryOfAnEntryIsThatOfThePartition(t *testing.T) {
	inv := node1()
	asked := wire.ContainerRef{Name: "main", Asks: true}
	p, err := wire.DecodeAssigned(idB+"[group2-2],NVIDIA,15000,0:", []wire.ContainerRef{asked}, &inv, 1)
	if err != nil {
		t.Fatal(err)
	}
	share := p.Containers[0].Shares[0]
	if share.Memory != 19968*sharing.MiB || share.Partition.Profile != "2g.20gb" || share.Partition.Size != 2 {
		t.Errorf("read as %+v", share)
	}
	if got := wire.EncodeAssigned(p, 1, asked); got != idB+"[group2-2],NVIDIA,19968,0:" {
		t.Errorf("written as %s", got)
	}
}
