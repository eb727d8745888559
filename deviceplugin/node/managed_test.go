// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"
	"strings"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

func TestLabelsSayWhetherAnotherProgramMakesPartitions(t *testing.T) {
	const deploy, config, state = "nvidia.com/gpu.deploy.mig-manager", "nvidia.com/mig.config", "nvidia.com/mig.config.state"
	type labels = map[string]string
	for name, c := range map[string]struct {
		labels labels
		want   []string // words; nil if nobody does
	}{
		"none":                           {nil, nil},
		"a node of the GPU operator":     {labels{"nvidia.com/gpu.present": "true", "nvidia.com/mig.capable": "true", "nvidia.com/gpu.deploy.dcgm": "true"}, nil},
		"mig-manager is deployed":        {labels{deploy: "true"}, []string{"mig-manager is deployed", deploy + "=false", "another mode"}},
		"with a configuration":           {labels{deploy: "true", config: "all-disabled"}, []string{config + "=all-disabled"}},
		"it is kept off":                 {labels{deploy: "false"}, nil},
		"the operator pauses it":         {labels{deploy: "paused-for-driver-upgrade"}, nil},
		"what it left: a configuration":  {labels{deploy: "false", config: "all-1g.5gb", state: "success"}, nil},
		"what it left: a failure":        {labels{config: "all-1g.5gb", state: "failed"}, nil},
		"it works, whoever deployed it":  {labels{config: "all-1g.5gb", state: "pending"}, []string{"is changing", config + "=all-1g.5gb", state + "=pending"}},
		"it has the node rebooted":       {labels{state: "rebooting"}, []string{"is changing", state + "=rebooting"}},
		"it works and is to be deployed": {labels{deploy: "true", state: "pending"}, []string{"is deployed"}},
	} {
		t.Run(name, func(t *testing.T) {
			why, is := node.Rival(c.labels)
			if is != (c.want != nil) {
				t.Fatalf("%t, %q", is, why)
			}
			for _, word := range c.want {
				if !strings.Contains(why, word) {
					t.Errorf("%q does not say %q", why, word)
				}
			}
		})
	}
}

func TestDevicesInModeMIGRestWhileMIGManagerIsThere(t *testing.T) {
	s := node.New(node.Config{Node: "n1"})
	s = reduce(t, s, node.Configured{Settings: node.Settings{Offers: modes{byDefault: sharing.HAMiCore, given: map[sharing.DeviceID]sharing.Mode{"GPU-0": sharing.MIG}}}})
	cut := card("GPU-0", 0, "A100", "1")
	cut.MIG.Capable = true
	s = reduce(t, s, node.Scanned{Devices: []node.Facts{cut, card("GPU-1", 1, "T4", "2")}})
	deployed := node.Labelled{Labels: map[string]string{"nvidia.com/gpu.deploy.mig-manager": "true"}}
	off := node.Labelled{Labels: map[string]string{"nvidia.com/gpu.deploy.mig-manager": "false"}}
	if s.IsNews(off) || !s.IsNews(deployed) {
		t.Error("what nobody knew is no news, or what is known is")
	}
	rests := reduce(t, s, deployed)
	if rests.IsNews(deployed) || !rests.IsNews(off) {
		t.Error("what was sent is news again, or its end is not")
	}
	mig, _ := rests.Condition("GPU-0")
	other, _ := rests.Condition("GPU-1")
	if mig.Kind != node.Interrupted || !strings.Contains(mig.Detail, "mig-manager") || other.Kind != node.Ready {
		t.Errorf("the device in mode mig is %v, the other %v", mig, other)
	}
	if may := mig.Kind.May(); may.Place || may.Begin || may.Change || !may.Resume {
		t.Errorf("what runs may start again and nothing else, but %+v", may)
	}
	kinds := func(before, after node.State) (all []node.NoticeKind) {
		for _, n := range node.Diff(before, after) {
			all = append(all, n.Kind)
		}
		return all
	}
	back := reduce(t, rests, off)
	if got := kinds(s, rests); !slices.Equal(got, []node.NoticeKind{node.ModeInterrupted}) {
		t.Errorf("people are told %v", got)
	}
	if got := kinds(rests, back); !slices.Equal(got, []node.NoticeKind{node.ModeRestored}) {
		t.Errorf("at its end they are told %v", got)
	}
}
