// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/sharing"
)

const ours = "volcano.sh/vgpu-number"

// saidOf is what the kubelet says of a pod: of each container, what plugins gave it, as
// "resource=id,id".
func saidOf(name string, containers ...string) *podresources.PodResources {
	out := &podresources.PodResources{Namespace: "ns", Name: name}
	for i, text := range containers {
		c := &podresources.ContainerResources{Name: fmt.Sprint("c", i), CpuIds: []int64{int64(i)}}
		for _, item := range strings.Fields(text) {
			resource, ids, _ := strings.Cut(item, "=")
			c.Devices = append(c.Devices, &podresources.ContainerDevices{ResourceName: resource, DeviceIds: strings.Split(ids, ",")})
		}
		out.Containers = append(out.Containers, c)
	}
	return out
}

// textOf is the reverse of saidOf, a line for each container.
func textOf(p *podresources.PodResources) string {
	var lines []string
	for _, c := range p.GetContainers() {
		var items []string
		for _, d := range c.GetDevices() {
			items = append(items, d.GetResourceName()+"="+strings.Join(d.GetDeviceIds(), ","))
		}
		lines = append(lines, strings.Join(items, " "))
	}
	return strings.Join(lines, "; ")
}

// record is what container c0 of pod p has: devices, or partitions as device/profile/uuid.
func record(mode sharing.Mode, slots string, devices ...string) checkpoint.Record {
	r := checkpoint.Record{ID: slots, Namespace: "ns", Pod: "p", Container: "c0", Slots: strings.Split(slots, ","), Mode: mode}
	for _, text := range devices {
		parts := strings.Split(text, "/")
		d := checkpoint.DeviceAndShare{Device: sharing.DeviceID(parts[0])}
		if len(parts) == 3 {
			d.Partition = checkpoint.Partition{Profile: parts[1], UUID: parts[2]}
		}
		r.Devices = append(r.Devices, d)
	}
	return r
}

func TestContainersHaveTheDevicesThatTheyWereGiven(t *testing.T) {
	elsewhere := record(sharing.HAMiCore, "slot-4", "GPU-x")
	elsewhere.Pod = "another"
	second := record(sharing.MPS, "slot-8", "GPU-b")
	second.Container = "c1"
	for name, c := range map[string]struct {
		said    *podresources.PodResources
		records []checkpoint.Record
		want    string
	}{
		"a share":                        {saidOf("p", ours+"=slot-4"), []checkpoint.Record{elsewhere, record(sharing.HAMiCore, "slot-4", "GPU-a")}, "nvidia.com/gpu=GPU-a::4"},
		"shares of two devices":          {saidOf("p", ours+"=slot-12,slot-3"), []checkpoint.Record{record(sharing.TimeSlicing, "slot-3,slot-12", "GPU-a", "GPU-b")}, "nvidia.com/gpu=GPU-a::3,GPU-b::12"},
		"two containers":                 {saidOf("p", ours+"=slot-4", ours+"=slot-8"), []checkpoint.Record{record(sharing.HAMiCore, "slot-4", "GPU-a"), second}, "nvidia.com/gpu=GPU-a::4; nvidia.com/gpu=GPU-b::8"},
		"a partition":                    {saidOf("p", ours+"=slot-4"), []checkpoint.Record{record(sharing.MIG, "slot-4", "GPU-a/1g.10gb+me/MIG-1")}, "nvidia.com/mig-1g.10gb.me=MIG-1"},
		"partitions of two profiles":     {saidOf("p", ours+"=slot-4,slot-5"), []checkpoint.Record{record(sharing.MIG, "slot-4,slot-5", "GPU-a/2g.20gb/MIG-2", "GPU-a/1g.10gb/MIG-1")}, "nvidia.com/mig-1g.10gb=MIG-1 nvidia.com/mig-2g.20gb=MIG-2"},
		"a partition not made yet":       {saidOf("p", ours+"=slot-4"), []checkpoint.Record{record(sharing.MIG, "slot-4", "GPU-a")}, ""},
		"nothing prepared yet":           {saidOf("p", ours+"=slot-4 rdma/nic=mlx0"), nil, "rdma/nic=mlx0"},
		"others' devices beside":         {saidOf("p", "rdma/nic=mlx0 "+ours+"=slot-4 nvidia.com/gpu=GPU-theirs"), []checkpoint.Record{record(sharing.HAMiCore, "slot-4", "GPU-a")}, "rdma/nic=mlx0 nvidia.com/gpu=GPU-theirs nvidia.com/gpu=GPU-a::4"},
		"a namesake that is gone":        {saidOf("p", ours+"=slot-5"), []checkpoint.Record{record(sharing.HAMiCore, "slot-4", "GPU-a")}, ""},
		"a pod of NVIDIA's plugin":       {saidOf("p", "nvidia.com/gpu=GPU-a::1"), []checkpoint.Record{record(sharing.HAMiCore, "slot-4", "GPU-b")}, "nvidia.com/gpu=GPU-a::1"},
		"slots of Volcano's plugin":      {saidOf("p", ours+"=GPU-z-7"), []checkpoint.Record{record(sharing.HAMiCore, "GPU-z-7", "GPU-a")}, "nvidia.com/gpu=GPU-a::7"},
		"the kubelet lists NUMA nodes":   {saidOf("p", ours+"=slot-3 "+ours+"=slot-12"), []checkpoint.Record{record(sharing.HAMiCore, "slot-3,slot-12", "GPU-a", "GPU-b")}, "nvidia.com/gpu=GPU-a::3,GPU-b::12"},
		"a slot without a number":        {saidOf("p", ours+"=odd"), []checkpoint.Record{record(sharing.HAMiCore, "odd", "GPU-a")}, "nvidia.com/gpu=GPU-a::0"},
		"a device plugin with no number": {saidOf("p", ours+"=x-"), []checkpoint.Record{record(sharing.HAMiCore, "x-", "GPU-a")}, "nvidia.com/gpu=GPU-a::0"},
	} {
		t.Run(name, func(t *testing.T) {
			before := proto.CloneOf(c.said)
			got := withTrueDevices(c.said, ours, c.records)
			if textOf(got) != c.want {
				t.Errorf("%s, want %s", textOf(got), c.want)
			}
			if !proto.Equal(c.said, before) {
				t.Error("what the kubelet said was changed")
			}
			if got.GetName() != "p" || got.GetContainers()[0].GetCpuIds()[0] != 0 {
				t.Errorf("what else the kubelet said is lost: %v", got)
			}
		})
	}
}

// As DCGM's exporter reads the answer, every pod is under the devices that it was given, and under
// no other.
func TestAnExporterFindsEveryPodUnderItsDevices(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		var said []*podresources.PodResources
		var records []checkpoint.Record
		want, slot := map[string][]string{}, 0
		for p := range 1 + r.IntN(12) {
			name := fmt.Sprint("p", p)
			var slots, devices []string
			mode := []sharing.Mode{sharing.HAMiCore, sharing.MIG, sharing.MPS}[r.IntN(3)]
			for _, d := range r.Perm(8)[:1+r.IntN(3)] {
				slot++
				slots = append(slots, fmt.Sprint("slot-", slot))
				device, key := fmt.Sprint("GPU-", d), fmt.Sprint("GPU-", d)
				if mode == sharing.MIG {
					key = fmt.Sprint("MIG-", slot)
					device += "/1g.5gb/" + key
				}
				devices = append(devices, device)
				want[key] = append(want[key], name)
			}
			one := record(mode, strings.Join(slots, ","), devices...)
			one.Pod = name
			r.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
			said, records = append(said, saidOf(name, ours+"="+strings.Join(slots, ","))), append(records, one)
		}
		got := map[string][]string{}
		for _, pod := range said {
			for _, d := range withTrueDevices(pod, ours, records).GetContainers()[0].GetDevices() {
				for _, id := range d.GetDeviceIds() {
					key, _, _ := strings.Cut(id, "::") // as the exporter does
					got[key] = append(got[key], pod.GetName())
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: an exporter finds %v, want %v", seed, got, want)
		}
	}
}

func TestTheNodeOffersDevicesInsteadOfSlots(t *testing.T) {
	said := &podresources.AllocatableResourcesResponse{CpuIds: []int64{1}, Devices: []*podresources.ContainerDevices{
		{ResourceName: ours, DeviceIds: []string{"slot-0"}}, {ResourceName: "rdma/nic", DeviceIds: []string{"mlx0"}}, {ResourceName: ours, DeviceIds: []string{"slot-1"}},
	}}
	devices := []sharing.Device{{ID: "GPU-a", Mode: sharing.HAMiCore}, {ID: "GPU-m", Mode: sharing.MIG}, {ID: "GPU-b", Mode: sharing.MPS}}
	got := withTrueOffer(said, ours, devices)
	if text := fmt.Sprint(got.GetDevices()[0].GetResourceName(), got.GetDevices()[1].GetResourceName(), got.GetDevices()[1].GetDeviceIds()); len(got.GetDevices()) != 2 || text != "rdma/nicnvidia.com/gpu[GPU-a GPU-b]" {
		t.Errorf("offered %v", got)
	}
	if len(said.GetDevices()) != 3 {
		t.Error("what the kubelet said was changed")
	}
	if got := withTrueOffer(&podresources.AllocatableResourcesResponse{}, ours, devices); len(got.GetDevices()) != 0 {
		t.Errorf("a kubelet that has no plugin of ours offers %v", got)
	}
}
