// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// modes is a configuration that gives modes to devices by id. Devices that it does
// not name have the default; those in mode "hidden" are not offered.
type modes struct {
	byDefault sharing.Mode
	given     map[sharing.DeviceID]sharing.Mode
}

const hidden = sharing.Mode("hidden")

func (m modes) Offer(f *node.Facts) node.Offer {
	mode, given := m.given[f.UUID]
	if !given {
		mode = m.byDefault
	}
	if mode == hidden {
		return node.Offer{Hidden: true}
	}
	return node.Offer{Mode: mode, Given: given, MemoryScaling: 1, CoreScaling: 1, MaxShares: 10}
}

// hardware is a node's devices as they really are, and what pods really hold. It
// outlives the plugin.
type hardware struct {
	entered map[sharing.DeviceID]map[sharing.Mode]bool
	records []node.Record
	running []node.Running
}

func newHardware() *hardware {
	return &hardware{entered: map[sharing.DeviceID]map[sharing.Mode]bool{}}
}

// switched are the modes of these tests that are states of a device.
func switched() []sharing.Mode { return []sharing.Mode{sharing.MIG, sharing.MPS} }

func (h *hardware) modesOf(id sharing.DeviceID) []sharing.Mode {
	var in []sharing.Mode
	for _, m := range switched() {
		if h.entered[id][m] {
			in = append(in, m)
		}
	}
	return in
}

func (h *hardware) holders(id sharing.DeviceID) []node.Holder {
	return node.HoldersOf(id, h.records, h.running)
}

// act is what a device does when it is told to.
func (h *hardware) act(id sharing.DeviceID, a node.Action) {
	if h.entered[id] == nil {
		h.entered[id] = map[sharing.Mode]bool{}
	}
	h.entered[id][a.Mode] = !a.Leave
}

// end ends a pod.
func (h *hardware) end(owner sharing.Owner) {
	var records []node.Record
	for _, r := range h.records {
		if r.Owner != owner {
			records = append(records, r)
		}
	}
	var running []node.Running
	for _, r := range h.running {
		if r.Owner != owner {
			running = append(running, r)
		}
	}
	h.records, h.running = records, running
}

func (h *hardware) recordsOf(owner sharing.Owner) []node.Record {
	var own []node.Record
	for _, r := range h.records {
		if r.Owner == owner {
			own = append(own, r)
		}
	}
	return own
}

// reduce is node.Reduce, which must not change the state it is given.
func reduce(t *testing.T, s node.State, e node.Event) node.State {
	t.Helper()
	before := fmt.Sprintf("%+v", s)
	next := node.Reduce(s, e)
	if after := fmt.Sprintf("%+v", s); after != before {
		t.Fatalf("%T %+v changed the state it was given:\n%s\n%s", e, e, before, after)
	}
	return next
}

// card is a device in a slot: GPU-<n> of the kind A100 (can be partitioned), T4 (cannot), P4 (older
// than Volta), vGPU or, made of a partition, MIG-vGPU.
func card(id string, index int, kind, slot string) node.Facts {
	f := node.Facts{
		UUID: sharing.DeviceID(id), Index: index, Model: kind, Memory: 16 * sharing.GiB, NUMA: -1, PCI: "0000:" + slot,
		Minor: index, Compute: 8, CUDA: 13000,
	}
	switch kind {
	case "A100":
		f.MIG = node.MIG{Capable: true, Slices: 8, Profiles: []sharing.Profile{{Name: "1g.2gb", Memory: 2 * sharing.GiB, Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}}}}
	case "vGPU":
		f.Virtual = true
	case "MIG-vGPU":
		f.Virtual = true
		f.MIG = node.MIG{Capable: true, Enabled: true, Pending: true}
	case "T4":
		f.Compute = 7
	case "P4":
		f.Compute = 6
	}
	return f
}
