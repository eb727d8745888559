// SPDX-License-Identifier: Apache-2.0

package sharingtest

import (
	"fmt"

	"deviceshare/sharing"
)

// Device makes a healthy device of a model in a mode. It panics on an unknown
// model: that is a mistake in the test.
func Device(index int, model string, mode sharing.Mode) sharing.Device {
	m, ok := Models()[model]
	if !ok {
		panic("sharingtest: unknown model " + model)
	}
	return sharing.Device{
		ID: sharing.DeviceID(fmt.Sprintf("GPU-%d", index)), Index: index, Model: m.Name,
		Memory: m.Memory, Cores: 100, MaxShares: 10, Healthy: true, Mode: mode, NUMA: -1, MIG: m.MIG,
	}
}

// Free lists no geometries for a device in mode mig, so that any partition may be
// cut anywhere.
func Free(d sharing.Device) sharing.Device {
	p := *d.MIG
	p.Geometries = nil
	d.MIG = &p
	return d
}

// BestFit chooses the partitions of a device in mode mig by best fit.
func BestFit(d sharing.Device) sharing.Device {
	p := *d.MIG
	p.Policy = sharing.BestFit
	d.MIG = &p
	return d
}

// Node makes the inventory of a node.
func Node(name string, devices ...sharing.Device) *sharing.Inventory {
	return &sharing.Inventory{Node: name, Devices: devices}
}

// Pod makes the request of a pod.
func Pod(owner string, requests ...sharing.Request) *sharing.PodRequest {
	return &sharing.PodRequest{Owner: sharing.Owner(owner), Requests: requests}
}

// Ask makes the request of an app container for one device, in MiB and percent; 0
// MiB asks for all memory.
func Ask(container string, mib int64, cores sharing.Percent) sharing.Request {
	r := sharing.Request{Container: container, Count: 1, Cores: cores}
	if mib != 0 {
		r.Memory = sharing.AbsoluteMemory(sharing.MiBs(mib))
	}
	return r
}

// Times asks for a number of devices instead of one.
func Times(n int, r sharing.Request) sharing.Request {
	r.Count = n
	return r
}

// As makes the request that of another kind of container.
func As(kind sharing.ContainerKind, r sharing.Request) sharing.Request {
	r.Kind = kind
	return r
}

// Give wraps shares as the placement of one app container.
func Give(container string, shares ...sharing.Share) sharing.Placement {
	return sharing.Placement{Containers: []sharing.ContainerShares{{Container: container, Shares: shares}}}
}
