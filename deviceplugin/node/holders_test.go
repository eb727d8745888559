// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// of is the placement of a pod with one container.
func of(shares ...sharing.Share) sharing.Placement {
	return sharing.Placement{Containers: []sharing.ContainerShares{{Container: "main", Shares: shares}}}
}

func TestWhoHoldsAShareOfADevice(t *testing.T) {
	const mps, mig = sharing.MPS, sharing.MIG
	record := func(owner sharing.Owner, mode sharing.Mode, devices ...sharing.DeviceID) node.Record {
		return node.Record{Owner: owner, Pod: "ns/" + string(owner), Mode: mode, Devices: devices}
	}
	running := func(owner sharing.Owner, shares ...sharing.Share) node.Running {
		return node.Running{Owner: owner, Pod: "ns/" + string(owner), Placement: of(shares...)}
	}
	unreadable := func(owner sharing.Owner) node.Running {
		return node.Running{Owner: owner, Pod: "ns/" + string(owner), Unreadable: true}
	}
	on := func(id sharing.DeviceID, mode sharing.Mode) sharing.Share {
		return sharing.Share{Device: id, Mode: mode}
	}
	for says, c := range map[string]struct {
		records []node.Record
		running []node.Running
		want    []string // owner and mode
	}{
		"nobody":                                      {},
		"who holds another device does not":           {[]node.Record{record("a", mps, "GPU-1")}, []node.Running{running("b", on("GPU-1", mig))}, nil},
		"a pod with a record":                         {[]node.Record{record("a", mps, "GPU-1", "GPU-0")}, nil, []string{"a mps"}},
		"a pod of two containers once":                {[]node.Record{record("a", mps, "GPU-0"), record("a", mps, "GPU-0")}, nil, []string{"a mps"}},
		"a pod that runs without a record":            {nil, []node.Running{running("a", on("GPU-1", mig), on("GPU-0", mps))}, []string{"a mps"}},
		"a pod with a record that runs once":          {[]node.Record{record("a", mps, "GPU-0")}, []node.Running{running("a", on("GPU-0", mps))}, []string{"a mps"}},
		"a pod in both modes in which it has a share": {[]node.Record{record("a", mps, "GPU-0")}, []node.Running{running("a", on("GPU-0", mig))}, []string{"a mps", "a mig"}},
		"two pods": {[]node.Record{record("a", mps, "GPU-0")}, []node.Running{running("b", on("GPU-0", mps))}, []string{"a mps", "b mps"}},
		"a pod that nobody can read, on any device": {nil, []node.Running{unreadable("a")}, []string{"a "}},
		"unless its records say where it is":        {[]node.Record{record("a", mps, "GPU-1")}, []node.Running{unreadable("a")}, nil},
	} {
		var got []string
		for _, h := range node.HoldersOf("GPU-0", c.records, c.running) {
			if h.Pod != "ns/"+string(h.Owner) {
				t.Errorf("%s: %s is called %s", says, h.Owner, h.Pod)
			}
			got = append(got, string(h.Owner)+" "+string(h.Mode))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", says, got, c.want)
		}
	}
}
