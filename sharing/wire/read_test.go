// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"maps"
	"reflect"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
)

// with returns a copy of annotations with some replaced; an empty value removes.
func with(a map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(a)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
		if pairs[i+1] == "" {
			delete(out, pairs[i])
		}
	}
	return out
}

func TestReadingANode(t *testing.T) {
	both, err := wire.NodeAnnotations(node1(), 1)
	if err != nil {
		t.Fatal(err)
	}
	other := node1()
	other.Node = "node2"
	elsewhere, _ := wire.NodeAnnotations(other, 1)
	sick := node1()
	sick.Devices[0].Healthy = false
	remoded := node1()
	remoded.Devices[0].Mode = sharing.MPS
	fewer := node1()
	fewer.Devices = fewer.Devices[:2]
	mixed, _ := wire.DecodeRegister(both[wire.NodeRegister], 1)
	mixed.Node = "node1"
	for name, c := range map[string]struct {
		annotations map[string]string
		factor      int64
		want        *sharing.Inventory
		why         string
	}{
		"nothing":                                  {annotations: map[string]string{"x": "y"}},
		"an empty legacy text":                     {annotations: map[string]string{wire.NodeRegister: ""}},
		"both texts":                               {annotations: both, want: ptr(node1())},
		"JSON alone":                               {annotations: with(both, wire.NodeRegister, ""), want: ptr(node1())},
		"the legacy text alone":                    {annotations: with(both, wire.NodeInventory, ""), want: &mixed},
		"another factor is no disagreement":        {annotations: both, factor: 1000, want: ptr(node1())},
		"wrong JSON beside a good legacy text":     {annotations: with(both, wire.NodeInventory, "{"), why: "too early"},
		"JSON beside a wrong legacy text":          {annotations: with(both, wire.NodeRegister, "GPU"), why: "fields"},
		"the JSON of another node":                 {annotations: elsewhere, why: `is "node2" on node "node1"`},
		"texts that disagree about health":         {annotations: with(both, wire.NodeRegister, wire.EncodeRegister(sick, 1)), why: "disagrees"},
		"texts that disagree about a mode":         {annotations: with(both, wire.NodeRegister, wire.EncodeRegister(remoded, 1)), why: "disagrees"},
		"texts that disagree about the devices":    {annotations: with(both, wire.NodeRegister, wire.EncodeRegister(fewer, 1)), why: "disagrees"},
		"JSON left behind by a device plugin gone": {annotations: with(both, wire.NodeRegister, "GPU-new,1,1,NVIDIA-X,true,mig:"), why: "no longer runs"},
	} {
		t.Run(name, func(t *testing.T) {
			got, found, err := wire.ReadNode(c.annotations, "node1", max(c.factor, 1))
			if c.why != "" {
				refused(t, err, "", c.why)
			} else if err != nil {
				t.Fatal(err)
			}
			if found != (c.want != nil) || found && !reflect.DeepEqual(got, *c.want) || !found && !reflect.DeepEqual(got, sharing.Inventory{}) {
				t.Errorf("got %+v, %v", got, found)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestReadingAPlacement(t *testing.T) {
	both, err := wire.PlacementAnnotations(pod1(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	inv, other := node1(), node1()
	other.Node = "node2"
	asks := []wire.ContainerRef{
		{Name: "load", Kind: sharing.Init, Asks: true, Count: 1}, {Name: "main", Asks: true, Count: 2}, {Name: "all", Asks: true, Count: 1},
		{Name: "memory alone", Kind: sharing.Init, Asks: true}, // a mistake, which gets nothing
	}
	assigned := with(both, wire.PodPlacement, "")
	less := pod1()
	less.Containers[2].Shares = less.Containers[2].Shares[:1]
	fewer, err := wire.PlacementAnnotations(less, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	legacy := sharing.Placement{Node: "node1", GeometryHash: "abc123", Containers: []sharing.ContainerShares{
		{Container: "main", Shares: pod1().Containers[2].Shares},
		{Container: "all", Shares: []sharing.Share{{Device: idC, Mode: sharing.TimeSlicing, Memory: 15360 * sharing.MiB, Cores: 100}}},
	}}
	for name, c := range map[string]struct {
		annotations map[string]string
		inv         *sharing.Inventory
		want        *sharing.Placement
		why         string
	}{
		"nothing":               {annotations: map[string]string{wire.PodNode: "node1"}},
		"an empty legacy text":  {annotations: map[string]string{wire.PodAssigned: "", wire.PodNode: "node1"}},
		"both texts":            {annotations: both, inv: &inv, want: ptr(pod1())},
		"JSON alone":            {annotations: with(both, wire.PodAssigned, ""), inv: &inv, want: ptr(pod1())},
		"no inventory":          {annotations: both, want: ptr(pod1())},
		"the legacy text alone": {annotations: assigned, inv: &inv, want: &legacy},
		"the legacy text in a mode that is wanted": {annotations: with(assigned, wire.UserMode, "time-slicing,hami-core,mig"), inv: &inv, want: &legacy},

		"the legacy text in a mode nobody wants": {annotations: with(assigned, wire.UserMode, "hami-core,mig"), inv: &inv, why: "in mode time-slicing, the pod accepts"},
		"the legacy text without a node":         {annotations: with(assigned, wire.PodNode, ""), inv: &inv, why: "not a node name"},
		"the legacy text of another node":        {annotations: with(assigned, wire.PodNode, "node9"), inv: &inv, why: "the inventory is of"},
		"the legacy text that is wrong":          {annotations: with(assigned, wire.PodAssigned, "x;y"), inv: &inv, why: "fields"},
		"wrong JSON beside a good legacy text":   {annotations: with(both, wire.PodPlacement, "{}"), inv: &inv, why: "missing"},
		"empty JSON beside a good legacy text": {annotations: func() map[string]string {
			a := maps.Clone(both)
			a[wire.PodPlacement] = ""
			return a
		}(), inv: &inv, why: "too early"},
		"JSON of another node than the annotation's": {annotations: with(both, wire.PodNode, "node9"), inv: &inv, why: "volcano.sh/vgpu-node is"},
		"JSON of another node than the inventory's":  {annotations: both, inv: &other, why: "the inventory is of"},
		"JSON that gives nobody anything": {annotations: with(both, wire.PodPlacement, `{"version":1,"node":"node1","containers":[]}`, wire.PodAssigned, ""),
			inv: &inv, why: `gives container "load" 0 devices, it asks for 1`},
		"JSON that gives a container fewer devices than it asks for":            {annotations: fewer, inv: &inv, why: `gives container "main" 1 devices, it asks for 2`},
		"the legacy text that gives a container fewer devices than it asks for": {annotations: with(fewer, wire.PodPlacement, ""), inv: &inv, why: `gives container "main" 1 devices, it asks for 2`},
		"a legacy scheduler has decided anew":                                   {annotations: with(both, wire.PodAssigned, idC+",NVIDIA,1,0:"), inv: &inv, why: "other devices"},
		"the legacy text beside JSON is garbage":                                {annotations: with(both, wire.PodAssigned, "garbage"), inv: &inv, why: "other devices"},
	} {
		t.Run(name, func(t *testing.T) {
			got, found, err := wire.ReadPlacement(c.annotations, asks, c.inv, 1)
			if c.why != "" {
				refused(t, err, "", c.why)
			} else if err != nil {
				t.Fatal(err)
			}
			if found != (c.want != nil) || found && !reflect.DeepEqual(got, *c.want) || !found && !reflect.DeepEqual(got, sharing.Placement{}) {
				t.Errorf("got %+v, %v", got, found)
			}
		})
	}
}

func TestAnotherFactorDoesNotMakeTheTextsDisagree(t *testing.T) {
	a, err := wire.PlacementAnnotations(pod1(), 1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := wire.ReadPlacement(a, nil, nil, 1); err != nil || !found {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestEmptyEntriesOfAPodDoNotMakeTheTextsDisagree(t *testing.T) {
	containers := []wire.ContainerRef{{Name: "zero", Asks: true}, {Name: "main", Asks: true}, {Name: "all", Asks: true}}
	a, err := wire.PlacementAnnotations(pod1(), 1, 1, containers...)
	if err != nil || a[wire.PodAssigned][0] != ';' {
		t.Fatalf("got %v, %v", a, err)
	}
	if _, found, err := wire.ReadPlacement(a, containers, nil, 1); err != nil || !found {
		t.Errorf("got %v, %v", found, err)
	}
	delete(a, wire.PodPlacement)
	p, found, err := wire.ReadPlacement(a, containers, nil, 1)
	if err != nil || !found || len(p.Containers) != 2 || p.Containers[0].Container != "main" {
		t.Errorf("got %+v, %v, %v", p, found, err)
	}
}

// A node's devices are mostly of one model, and their partitionings are most of the text.
func TestDevicesOfOneModelShareTheirPartitioning(t *testing.T) {
	inv := sharing.Inventory{Node: "node1"}
	for i, model := range []string{"A100-40", "A30", "A100-40"} {
		inv.Devices = append(inv.Devices, sharingtest.Device(i, model, sharing.MIG))
	}
	text, err := wire.EncodeInventory(inv)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodeInventory(text)
	if err != nil || !reflect.DeepEqual(got, inv) {
		t.Fatalf("got %+v %v, want %+v", got, err, inv)
	}
	if got.Devices[0].MIG != got.Devices[2].MIG || got.Devices[0].MIG == got.Devices[1].MIG {
		t.Error("equal partitionings are not shared, or others are")
	}
}
