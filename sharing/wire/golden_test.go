// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// The texts below are stored in clusters: a change of any is a change of the
// format.

func TestTheInventoryTextStaysAsItIs(t *testing.T) {
	inv := node1()
	inv.Devices[1].MIG.Profiles = inv.Devices[1].MIG.Profiles[2:3]
	inv.Devices[1].MIG.Geometries = inv.Devices[1].MIG.Geometries[:1]
	got, err := wire.EncodeInventory(inv)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"node":"node1","geometryHash":"abc123","devices":[` +
		`{"uuid":"GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448","index":0,"model":"NVIDIA A100-SXM4-80GB","memory":85899345920,"cores":100,` +
		`"maxShares":10,"healthy":true,"mode":"hami-core","numa":0,"pci":"0000:07:00.0",` +
		`"links":[{"peer":"GPU-1a2b3c4d-0000-4000-8000-000000000001","kind":"nvlink"}]},` +
		`{"uuid":"GPU-1a2b3c4d-0000-4000-8000-000000000001","index":2,"model":"NVIDIA A100-SXM4-80GB","memory":85899345920,"cores":100,` +
		`"maxShares":7,"healthy":true,"mode":"mig","numa":1,"mig":{"slices":8,` +
		`"profiles":[{"name":"2g.20gb","memory":20937965568,"compute":2,"size":2,"starts":[0,2,4],"max":3}],` +
		`"geometries":[{"name":"group1","entries":[{"profile":"1g.10gb","memory":10200547328,"count":7}]}]}},` +
		`{"uuid":"GPU-1a2b3c4d-0000-4000-8000-000000000002","index":5,"model":"Tesla T4","memory":16106127360,"cores":150,` +
		`"maxShares":4,"healthy":false,"mode":"time-slicing","numa":-1}]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestThePlacementTextStaysAsItIs(t *testing.T) {
	got, err := wire.EncodePlacement(pod1())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"node":"node1","group":"default/train","geometryHash":"abc123","containers":[` +
		`{"name":"load","kind":"init","shares":[{"uuid":"GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448","mode":"hami-core","memory":536870912,"cores":10}]},` +
		`{"name":"proxy","kind":"sidecar","shares":[{"uuid":"GPU-1a2b3c4d-0000-4000-8000-000000000002","mode":"time-slicing","memory":1073741824,"cores":0}]},` +
		`{"name":"main","kind":"app","shares":[{"uuid":"GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448","mode":"hami-core","memory":1048576000,"cores":30},` +
		`{"uuid":"GPU-1a2b3c4d-0000-4000-8000-000000000001","mode":"mig","memory":20937965568,"cores":0,` +
		`"partition":{"profile":"2g.20gb","start":2,"size":2,"geometry":"group2","position":2}}]},` +
		`{"name":"all","kind":"app","shares":[{"uuid":"GPU-1a2b3c4d-0000-4000-8000-000000000002","mode":"time-slicing","memory":16106127360,"cores":100,"whole":true}]}]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTheRegisterTextIsTheLegacyOne(t *testing.T) {
	healthy := func(id string, mode sharing.Mode) sharing.Device {
		return sharing.Device{ID: sharing.DeviceID(id), Model: "NVIDIA A100", Memory: 81920*sharing.MiB + 5, MaxShares: 10, Healthy: true, Mode: mode}
	}
	number := func(devices ...sharing.Device) sharing.Inventory {
		for i := range devices {
			devices[i].Index = i
		}
		return sharing.Inventory{Node: "n", Devices: devices}
	}
	sick := healthy("GPU-b", sharing.HAMiCore)
	sick.Healthy = false
	odd := healthy("GPU-a", sharing.HAMiCore)
	odd.Model = "GPU:1,2;3"
	for name, c := range map[string]struct {
		inv    sharing.Inventory
		factor int64
		want   string
	}{
		"no device":  {number(), 1, ""},
		"one device": {number(healthy("GPU-a", sharing.HAMiCore)), 1, "GPU-a,10,81920,NVIDIA-NVIDIA A100,true,hami-core:"},
		"memory in units of the factor, rounded down": {
			number(healthy("GPU-a", sharing.HAMiCore)), 1000, "GPU-a,10,81,NVIDIA-NVIDIA A100,true,hami-core:",
		},
		"an unhealthy device has count 0, since health is not looked at": {
			number(healthy("GPU-a", sharing.HAMiCore), sick), 0,
			"GPU-a,10,81920,NVIDIA-NVIDIA A100,true,hami-core:GPU-b,0,81920,NVIDIA-NVIDIA A100,false,hami-core:",
		},
		"a device nobody may share is withheld like an unhealthy one": {
			number(func() sharing.Device {
				d := healthy("GPU-a", sharing.HAMiCore)
				d.MaxShares = 0
				return d
			}()), 1, "GPU-a,0,81920,NVIDIA-NVIDIA A100,false,hami-core:",
		},
		"a mode for each device": {
			number(healthy("GPU-a", sharing.MPS), healthy("GPU-b", sharing.TimeSlicing)), 1,
			"GPU-a,10,81920,NVIDIA-NVIDIA A100,true,mps:GPU-b,10,81920,NVIDIA-NVIDIA A100,true,time-slicing:",
		},
		"where the last mode would be taken for the node, other devices are withheld": {
			number(healthy("GPU-a", sharing.MIG), healthy("GPU-b", sharing.HAMiCore)), 1,
			"GPU-a,0,81920,NVIDIA-NVIDIA A100,false,mig:GPU-b,10,81920,NVIDIA-NVIDIA A100,true,hami-core:",
		},
		"a model name cannot break the grammar": {number(odd), 1, "GPU-a,10,81920,NVIDIA-GPU_1_2_3,true,hami-core:"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wire.EncodeRegister(c.inv, c.factor); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTheAssignedTextIsTheLegacyOne(t *testing.T) {
	share := func(id string, memory sharing.Bytes, cores sharing.Percent) sharing.Share {
		return sharing.Share{Device: sharing.DeviceID(id), Mode: sharing.HAMiCore, Memory: memory, Cores: cores}
	}
	part := share("GPU-a", 9728*sharing.MiB, 0)
	part.Mode, part.Partition = sharing.MIG, sharing.Partition{Profile: "1g.10gb", Size: 1, Start: 6, Geometry: "group2", Position: 3}
	free := part
	free.Partition.Geometry, free.Partition.Position = "", 0
	container := func(name string, kind sharing.ContainerKind, shares ...sharing.Share) sharing.ContainerShares {
		return sharing.ContainerShares{Container: name, Kind: kind, Shares: shares}
	}
	for name, c := range map[string]struct {
		containers []sharing.ContainerShares
		refs       []wire.ContainerRef
		factor     int64
		want       string
	}{
		"no container": {want: ""},
		"two devices of one container": {
			containers: []sharing.ContainerShares{container("a", sharing.App, share("GPU-a", sharing.GiB, 30), share("GPU-b", sharing.MiB, 0))},
			want:       "GPU-a,NVIDIA,1024,30:GPU-b,NVIDIA,1,0:",
		},
		"two containers": {
			containers: []sharing.ContainerShares{container("a", sharing.App, share("GPU-a", sharing.GiB, 30)), container("b", sharing.App, share("GPU-a", sharing.GiB, 5))},
			want:       "GPU-a,NVIDIA,1024,30:;GPU-a,NVIDIA,1024,5:",
		},
		"a partition":                   {containers: []sharing.ContainerShares{container("a", sharing.App, part)}, want: "GPU-a[group2-3],NVIDIA,9728,0:"},
		"a partition of no geometry":    {containers: []sharing.ContainerShares{container("a", sharing.App, free)}, want: "GPU-a[-6],NVIDIA,9728,0:"},
		"memory is rounded up to MiB":   {containers: []sharing.ContainerShares{container("a", sharing.App, share("GPU-a", sharing.MiB+1, 0))}, want: "GPU-a,NVIDIA,2,0:"},
		"memory is rounded up to units": {containers: []sharing.ContainerShares{container("a", sharing.App, share("GPU-a", 1001*sharing.MiB, 0))}, factor: 1000, want: "GPU-a,NVIDIA,2,0:"},
		"init containers are left out": {
			containers: []sharing.ContainerShares{container("i", sharing.Init, share("GPU-b", sharing.GiB, 0)), container("s", sharing.Sidecar, share("GPU-b", sharing.GiB, 0)), container("a", sharing.App, share("GPU-a", sharing.GiB, 0))},
			want:       "GPU-a,NVIDIA,1024,0:",
		},
		"a container with number 0 has an empty entry": {
			containers: []sharing.ContainerShares{container("b", sharing.App, share("GPU-a", sharing.GiB, 0))},
			refs:       []wire.ContainerRef{{Name: "i", Kind: sharing.Init, Asks: true}, {Name: "a", Asks: true}, {Name: "plain"}, {Name: "b", Asks: true}, {Name: "c", Asks: true}},
			want:       ";GPU-a,NVIDIA,1024,0:;",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wire.EncodeAssigned(sharing.Placement{Containers: c.containers}, c.factor, c.refs...); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTheSchedulerWritesSevenAnnotations(t *testing.T) {
	a, err := wire.PlacementAnnotations(pod1(), 1, 1700000000)
	if err != nil {
		t.Fatal(err)
	}
	placement, _ := wire.EncodePlacement(pod1())
	ids := idA + ",NVIDIA,1000,30:" + idB + "[group2-2],NVIDIA,19968,0:;" + idC + ",NVIDIA,15360,100:"
	want := map[string]string{
		"volcano.sh/vgpu-placement": placement, "volcano.sh/vgpu-node": "node1", "volcano.sh/vgpu-time": "1700000000",
		"volcano.sh/vgpu-ids-new": ids, "volcano.sh/devices-to-allocate": ids,
		"volcano.sh/bind-phase": "allocating", "volcano.sh/bind-time": "1700000000",
	}
	if len(a) != len(want) {
		t.Errorf("got %d annotations", len(a))
	}
	for key, value := range want {
		if a[key] != value {
			t.Errorf("%s is %q, want %q", key, a[key], value)
		}
	}
}

func TestTheNodePublishesTwoTextsAndASignOfLife(t *testing.T) {
	a, err := wire.NodeAnnotations(node1(), 1)
	if err != nil || len(a) != 2 {
		t.Fatalf("got %v, %v", a, err)
	}
	if !strings.HasPrefix(a["volcano.sh/node-vgpu-inventory"], `{"version":1,"node":"node1"`) ||
		!strings.HasPrefix(a["volcano.sh/node-vgpu-register"], idA+",10,81920,NVIDIA-NVIDIA A100-SXM4-80GB,true,hami-core:") {
		t.Errorf("got %v", a)
	}
	key, value := wire.HandshakeAnnotation("2026.11.20 16:00:00")
	if key != "volcano.sh/node-vgpu-handshake" || value != "Reported 2026.11.20 16:00:00" {
		t.Errorf("got %s, %s", key, value)
	}
}
