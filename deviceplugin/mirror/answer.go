// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/sharing"
)

// Names by which exporters of NVIDIA know devices and partitions, as its device plugin has them.
const (
	deviceResource  = "nvidia.com/gpu"
	partitionPrefix = "nvidia.com/mig-"
	// replicaSeparator stands between the UUID of a device and the number of a share.
	replicaSeparator = "::"
)

// withTrueDevices returns what the kubelet said of a pod, with our resource replaced by the devices
// that its containers have. Of a container without a record, such as one that is being started,
// nothing is known yet. What the kubelet said is unchanged.
func withTrueDevices(said *podresources.PodResources, resource string, records []checkpoint.Record) *podresources.PodResources {
	out := proto.CloneOf(said)
	for _, c := range out.GetContainers() {
		var slots []string
		c.Devices = slices.DeleteFunc(c.Devices, func(d *podresources.ContainerDevices) bool {
			isOurs := d.GetResourceName() == resource
			if isOurs {
				slots = append(slots, d.GetDeviceIds()...)
			}
			return isOurs
		})
		for i := range records {
			// A pod of the same name that is gone may have a record still; it had other slots.
			if r := &records[i]; r.Namespace == said.GetNamespace() && r.Pod == said.GetName() && r.Container == c.GetName() && sameSlots(r.Slots, slots) {
				c.Devices = append(c.Devices, devicesOf(r)...)
			}
		}
	}
	return out
}

func sameSlots(a, b []string) bool {
	return len(a) > 0 && slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// devicesOf returns what a record holds, in the words of NVIDIA's device plugin.
func devicesOf(r *checkpoint.Record) []*podresources.ContainerDevices {
	ids := map[string][]string{}
	for i := range r.Devices {
		switch d := &r.Devices[i]; {
		case d.Partition.UUID != "":
			name := partitionPrefix + strings.ReplaceAll(d.Partition.Profile, "+", ".")
			ids[name] = append(ids[name], d.Partition.UUID)
		case r.Mode != sharing.MIG:
			ids[deviceResource] = append(ids[deviceResource], string(d.Device)+replicaSeparator+shareNumber(r, i))
		}
	}
	var out []*podresources.ContainerDevices
	for name, list := range ids {
		out = append(out, &podresources.ContainerDevices{ResourceName: name, DeviceIds: list})
	}
	slices.SortFunc(out, func(a, b *podresources.ContainerDevices) int {
		return cmp.Compare(a.GetResourceName(), b.GetResourceName())
	})
	return out
}

// shareNumber tells the shares of a device apart for as long as they are there: no two containers
// of a node have the same slot.
func shareNumber(r *checkpoint.Record, i int) string {
	if i < len(r.Slots) {
		slot := r.Slots[i]
		if number := slot[strings.LastIndexByte(slot, '-')+1:]; number != "" && strings.Trim(number, "0123456789") == "" {
			return number
		}
	}
	return strconv.Itoa(i)
}

// withTrueOffer returns what the kubelet said of what there is, with our resource replaced by the
// devices of the node. Partitions are left out: they come and go.
func withTrueOffer(said *podresources.AllocatableResourcesResponse, resource string, devices []sharing.Device) *podresources.AllocatableResourcesResponse {
	out := proto.CloneOf(said)
	offered := false
	out.Devices = slices.DeleteFunc(out.Devices, func(d *podresources.ContainerDevices) bool {
		isOurs := d.GetResourceName() == resource
		offered = offered || isOurs
		return isOurs
	})
	var ids []string
	for i := range devices {
		if d := &devices[i]; offered && d.Mode != sharing.MIG {
			ids = append(ids, string(d.ID))
		}
	}
	if len(ids) > 0 {
		out.Devices = append(out.Devices, &podresources.ContainerDevices{ResourceName: deviceResource, DeviceIds: ids})
	}
	return out
}
