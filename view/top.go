// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"

	"deviceshare/view/usage"
)

// Reading is what the device plugin of one node said, twice.
type Reading struct {
	// Unread is why it said nothing, "" if it did.
	Unread string
	// Before and Now are what it said, and Seconds the time between them; Before may be nil.
	Before, Now *usage.Page
	Seconds     float64
}

// NodeTop is what is used of the devices of one node.
type NodeTop struct {
	Node string `json:"node"`
	// Unread is why it is not known what is used, "" if it is.
	Unread  string      `json:"unread,omitempty"`
	Devices []DeviceTop `json:"devices"`
}

// DeviceTop is what is used of one device. Memory is in bytes.
type DeviceTop struct {
	Index  int    `json:"index"`
	ID     string `json:"id"`
	Model  string `json:"model"`
	Mode   string `json:"mode"`
	Memory int64  `json:"memory"`
	// MemoryAllocated is promised to pods, MemoryUsed what their containers have now.
	MemoryAllocated int64 `json:"memoryAllocated"`
	MemoryUsed      int64 `json:"memoryUsed"`
	// Strangers is what processes have that were given nothing of the device.
	Strangers  int64          `json:"strangers,omitempty"`
	Containers []ContainerTop `json:"containers,omitempty"`
}

// ContainerTop is what one container uses of one device. Memory is in bytes, compute in percent of
// the device.
type ContainerTop struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Known says whether its node told what it uses.
	Known           bool  `json:"known"`
	MemoryUsed      int64 `json:"memoryUsed"`
	MemoryAllocated int64 `json:"memoryAllocated"`
	// MemoryLimit is what is enforced; 0 is nothing.
	MemoryLimit int64 `json:"memoryLimit"`
	// ComputeUsed is over the time between two readings; nil where nobody measures it.
	ComputeUsed      *float64 `json:"computeUsed,omitempty"`
	ComputeAllocated int      `json:"computeAllocated"`
}

// Top joins what is promised with what the device plugins say is used. A node without a reading is
// shown with its promises.
func Top(devices []NodeDevices, readings map[string]Reading) []NodeTop {
	out := make([]NodeTop, 0, len(devices))
	for i := range devices {
		n := &devices[i]
		r, asked := readings[n.Node]
		if !asked {
			r.Unread = "no device plugin runs on it"
		}
		one := NodeTop{Node: n.Node, Unread: r.Unread}
		for k := range n.Devices {
			one.Devices = append(one.Devices, r.deviceUsage(&n.Devices[k]))
		}
		out = append(out, one)
	}
	return out
}

func (r *Reading) deviceUsage(d *Device) DeviceTop {
	out := DeviceTop{Index: d.Index, ID: d.ID, Model: d.Model, Mode: d.Mode, Memory: d.Memory, MemoryAllocated: d.MemoryPromised}
	at := map[usage.Holder]int{}
	for _, s := range d.Sharers {
		h := s.usageHolder(d.ID)
		i, known := at[h]
		if !known {
			i = len(out.Containers)
			at[h] = i
			out.Containers = append(out.Containers, ContainerTop{Pod: s.Pod, Container: s.Container})
		}
		out.Containers[i].MemoryAllocated += s.Memory
		out.Containers[i].ComputeAllocated += s.Cores
	}
	if r.Now == nil {
		return out
	}
	out.Strangers = r.Now.Strangers[d.ID]
	for _, h := range slices.SortedFunc(maps.Keys(r.Now.Uses), compareHolders) {
		if h.Device != d.ID {
			continue
		}
		i, known := at[h]
		if !known { // its share is taken back already, or was never seen
			i = len(out.Containers)
			out.Containers = append(out.Containers, ContainerTop{Pod: h.Namespace + "/" + h.Pod, Container: h.Container})
		}
		r.fillUsage(&out.Containers[i], h)
		out.MemoryUsed += out.Containers[i].MemoryUsed
	}
	return out
}

func (r *Reading) fillUsage(c *ContainerTop, h usage.Holder) {
	now := r.Now.Uses[h]
	c.Known, c.MemoryUsed, c.MemoryLimit = true, now.Memory, now.Limit
	if r.Before == nil || !now.Measured || r.Seconds <= 0 {
		return
	}
	// A container that has begun anew counts from 0 again.
	if before, there := r.Before.Uses[h]; there && before.Measured && now.Seconds >= before.Seconds {
		percent := (now.Seconds - before.Seconds) / r.Seconds * 100
		c.ComputeUsed = &percent
	}
}

func compareHolders(a, b usage.Holder) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
}
