// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strings"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/view/usage"
)

// NodeDevices are the devices of one node.
type NodeDevices struct {
	Node string `json:"node"`
	// Unusable is why the node takes no pods with devices, "" if it does.
	Unusable string   `json:"unusable,omitempty"`
	Devices  []Device `json:"devices"`
}

// Device is one card with who is on it.
type Device struct {
	Index  int    `json:"index"`
	ID     string `json:"id"`
	Model  string `json:"model"`
	Mode   string `json:"mode"`
	Health string `json:"health"`
	// Virtual says that the device is a vGPU. Licence is valid, missing, or "" if not known.
	Virtual bool   `json:"virtual,omitempty"`
	Licence string `json:"licence,omitempty"`
	// NUMA is the NUMA node, -1 if it is not known.
	NUMA  int      `json:"numa"`
	PCI   string   `json:"pci,omitempty"`
	Links []string `json:"links,omitempty"`
	// Memory in bytes and compute in percent: what there is and what is promised.
	Memory         int64 `json:"memory"`
	MemoryPromised int64 `json:"memoryPromised"`
	Cores          int   `json:"cores"`
	CoresPromised  int   `json:"coresPromised"`
	// MemoryFree is what pods can still get of the memory.
	MemoryFree int64 `json:"memoryFree"`
	// Slices is the number of memory slices in mode mig, else 0.
	Slices  int      `json:"slices,omitempty"`
	Sharers []Sharer `json:"sharers,omitempty"`
}

// Sharer is one share with who holds it.
type Sharer struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Memory    int64  `json:"memory"`
	Cores     int    `json:"cores"`
	Whole     bool   `json:"whole,omitempty"`
	// Profile, Start and Size are the partition, in mode mig.
	Profile string `json:"profile,omitempty"`
	Start   int    `json:"start,omitempty"`
	Size    int    `json:"size,omitempty"`
}

// usageHolder is who the device plugin's metrics call the sharer of a device.
func (s *Sharer) usageHolder(device string) usage.Holder {
	namespace, pod, _ := strings.Cut(s.Pod, "/")
	return usage.Holder{Namespace: namespace, Pod: pod, Container: s.Container, Device: device}
}

// Devices lists the devices of one node, or of all with "".
func (c *Cluster) Devices(node string) []NodeDevices {
	out, rooms := []NodeDevices{}, c.newCapacityCache()
	for _, n := range c.nodes {
		if n.Ledger == nil || node != "" && n.Name != node {
			continue
		}
		one := NodeDevices{Node: n.Name}
		if n.Unusable != nil {
			one.Unusable = n.Unusable.Error()
		}
		views := n.Ledger.Views()
		for i := range views {
			one.Devices = append(one.Devices, c.describeDevice(n, &views[i], rooms))
		}
		out = append(out, one)
	}
	return out
}

func (c *Cluster) describeDevice(n *nodes.Node, v *sharing.View, rooms *capacityCache) Device {
	d := v.Device
	out := Device{
		Index: d.Index, ID: string(d.ID), Model: d.Model, Mode: string(d.Mode), Health: healthText(d), NUMA: d.NUMA, PCI: d.PCI,
		Memory: int64(d.Memory), MemoryPromised: int64(v.UsedMemory()), Cores: int(d.Cores), CoresPromised: int(v.UsedCores()),
		MemoryFree: int64(rooms.freeOn(v).memory), Virtual: d.Virtual, Licence: string(d.Licence),
	}
	if d.MIG != nil && d.Mode == sharing.MIG {
		out.Slices = d.MIG.Slices
	}
	for _, l := range d.Links {
		out.Links = append(out.Links, linkText(n.Inventory, l))
	}
	for _, h := range v.Held() {
		s := Sharer{Pod: c.nameOf(h.Owner), Container: h.Container, Memory: int64(h.Share.Memory), Cores: int(h.Share.Cores), Whole: h.Share.Whole}
		if p := h.Share.Partition; !p.IsZero() {
			s.Profile, s.Start, s.Size = p.Profile, p.Start, p.Size
		}
		out.Sharers = append(out.Sharers, s)
	}
	slices.SortStableFunc(out.Sharers, func(a, b Sharer) int { return compareSharers(&a, &b) })
	return out
}

// healthText says in a word how a device is, and why it takes no pods.
func healthText(d *sharing.Device) string {
	var text string
	switch {
	case d.Changing:
		text = "changing mode"
	case d.Healthy && d.Cordon == nil:
		return "ok"
	case d.Healthy:
		return d.Cordon.String()
	case d.Reason == "":
		text = "broken"
	default:
		text = "broken: " + d.Reason
	}
	if d.Cordon != nil {
		text += "; " + d.Cordon.String()
	}
	return text
}

// linkText is "nvlink:3" for a link to the device with index 3.
func linkText(inv *sharing.Inventory, l sharing.Link) string {
	if d, ok := inv.Device(l.Peer); ok {
		return l.Kind + ":" + itoa(d.Index)
	}
	return l.Kind + ":" + string(l.Peer)
}
