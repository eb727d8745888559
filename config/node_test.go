// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"reflect"
	"testing"

	"deviceshare/config"
	"deviceshare/sharing"
)

func TestALegacyNodeConfigIsRead(t *testing.T) {
	n, problems := config.LoadNode([]byte(`{"nodeconfig":[
		{"name":"node1","operatingmode":"mig","devicememoryscaling":1.8,"devicecorescaling":2,"devicesplitcount":5,
		 "migstrategy":"none","filterdevices":{"uuid":["GPU-a"],"index":[0,3]}},
		{"name":"node2","operatingmode":"","devicememoryscaling":0,"devicesplitcount":0,"filterdevices":{"uuid":[],"index":[]}}
	]}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := config.NodeSettings{
		Name: "node1", Mode: sharing.MIG, MemoryScaling: 1.8, CoreScaling: 2, SplitCount: 5, MigStrategy: "none",
		HiddenIDs: []sharing.DeviceID{"GPU-a"}, HiddenIndexes: []int{0, 3},
	}
	if got := n.For("node1"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := n.For("node2"); !reflect.DeepEqual(got, config.NodeSettings{Name: "node2"}) {
		t.Errorf("got %+v", got)
	}
	if got := n.For("node3"); !reflect.DeepEqual(got, config.NodeSettings{Name: "node3"}) {
		t.Errorf("got %+v", got)
	}
}

func TestTheClientsOfAnMPSServerAreLoweredForANodeOrADevice(t *testing.T) {
	n, problems := config.LoadNode([]byte(`{"nodeconfig":[{"name":"n","mpsclients":20,"devices":[{"model":"T4","mode":"mps","mpsclients":10}]}]}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	here := n.For("n")
	if got := here.Device(config.DefaultDevice(), "GPU-a", 0, "NVIDIA A30").MaxClients; got != 20 {
		t.Errorf("the node's device is lowered to %d, want 20", got)
	}
	if got := here.Device(config.DefaultDevice(), "GPU-b", 1, "Tesla T4").MaxClients; got != 10 {
		t.Errorf("the device with a rule is lowered to %d, want 10", got)
	}
	if _, problems := config.LoadNode([]byte(`{"nodeconfig":[{"name":"n","mpsclients":-1}]}`)); len(problems) != 1 {
		t.Errorf("a negative number has problems %v", problems)
	}
}

const perDevice = `{"nodeconfig":[{"name":"n","operatingmode":"hami-core","devicesplitcount":5,"devicememoryscaling":2,
	"filterdevices":{"uuid":["GPU-hidden"],"index":[9]},
	"devices":[
		{"uuid":"GPU-1","mode":"mig"},
		{"index":1,"mode":"time-slicing","splitcount":2,"memoryscaling":3,"corescaling":4},
		{"model":"T4","mode":"mps"},
		{"index":3,"mode":"mig"}
	]}]}`

func TestWhatHoldsForOneDevice(t *testing.T) {
	n, problems := config.LoadNode([]byte(perDevice))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	base := config.DefaultDevice()
	base.CoreScaling = 1.5
	for name, c := range map[string]struct {
		node  string
		id    sharing.DeviceID
		index int
		model string
		want  config.DeviceSettings
	}{
		"a node without settings": {
			node: "other", id: "GPU-1", want: config.DeviceSettings{Mode: sharing.HAMiCore, MemoryScaling: 1, CoreScaling: 1.5, MaxShares: 10},
		},
		"no rule matches": {
			node: "n", id: "GPU-2", index: 2, want: config.DeviceSettings{Mode: sharing.HAMiCore, Given: true, MemoryScaling: 2, CoreScaling: 1.5, MaxShares: 5},
		},
		"by UUID": {
			node: "n", id: "GPU-1", want: config.DeviceSettings{Mode: sharing.MIG, Given: true, MemoryScaling: 2, CoreScaling: 1.5, MaxShares: 5},
		},
		"by index, with every field": {
			node: "n", index: 1, want: config.DeviceSettings{Mode: sharing.TimeSlicing, Given: true, MemoryScaling: 3, CoreScaling: 4, MaxShares: 2},
		},
		"by model": {
			node: "n", index: 2, model: "Tesla T4", want: config.DeviceSettings{Mode: sharing.MPS, Given: true, MemoryScaling: 2, CoreScaling: 1.5, MaxShares: 5},
		},
		"the first rule that matches": {
			node: "n", index: 3, model: "Tesla T4", want: config.DeviceSettings{Mode: sharing.MPS, Given: true, MemoryScaling: 2, CoreScaling: 1.5, MaxShares: 5},
		},
		"hidden by UUID": {
			node: "n", id: "GPU-hidden", index: 2, want: config.DeviceSettings{Hidden: true, Mode: sharing.HAMiCore, Given: true, MemoryScaling: 2, CoreScaling: 1.5, MaxShares: 5},
		},
		"hidden by index": {
			node: "n", index: 9, want: config.DeviceSettings{Hidden: true, Mode: sharing.HAMiCore, Given: true, MemoryScaling: 2, CoreScaling: 1.5, MaxShares: 5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := n.For(c.node).Device(base, c.id, c.index, c.model); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestProblemsOfTheNodeConfig(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":       {"", []string{"is empty"}},
		"no nodeconfig": {"{}", []string{"nodeconfig: is missing"}},
		"a typing error": {
			`{"nodeConfig":[]}`, []string{"nodeconfig: is missing", "nodeConfig: is not known: write nodeconfig"},
		},
		"a node without a name": {`{"nodeconfig":[{}]}`, []string{"nodeconfig[0].name: is missing"}},
		"a node twice": {
			`{"nodeconfig":[{"name":"a"},{"name":"a"}]}`, []string{"nodeconfig[1].name: a is there twice"},
		},
		"several at once": {
			`{"nodeconfig":[{"name":"a","operatingmode":"foo","devicesplitcount":-1,"migstrategy":"double","filterdevices":{"uuid":[1],"index":["0",-1],"slot":1}},5]}`,
			[]string{
				`nodeconfig[0].operatingmode: unknown mode "foo": want one of mig, hami-core, mps, time-slicing`,
				"nodeconfig[0].devicesplitcount: -1 is outside 0 to 1000",
				`nodeconfig[0].migstrategy: "double" is not none, single or mixed`,
				"nodeconfig[0].filterdevices.uuid[0]: is the number 1, want a device UUID",
				`nodeconfig[0].filterdevices.index[0]: is the text "0", want a whole number`,
				"nodeconfig[0].filterdevices.index[1]: -1 is outside 0 to 65536",
				"nodeconfig[0].filterdevices.slot: is not known: want one of uuid, index",
				"nodeconfig[1]: is the number 5, want a map",
			},
		},
		"rules for devices": {
			`{"nodeconfig":[{"name":"a","devices":[{"mode":"mig"},{"uuid":"GPU-1","index":0},{"model":" ","mode":"MIG"}]}]}`,
			[]string{
				"nodeconfig[0].devices[0]: has 0 of uuid, index and model: want exactly one",
				"nodeconfig[0].devices[1]: has 2 of uuid, index and model: want exactly one",
				"nodeconfig[0].devices[2].model: has no letter or digit: want words of a product name, such as A100-SXM4",
				`nodeconfig[0].devices[2].mode: unknown mode "MIG": want one of mig, hami-core, mps, time-slicing`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, problems := config.LoadNode([]byte(c.text))
			compare(t, problems, c.want)
			if len(n.Nodes) > 0 {
				t.Errorf("half-read: %+v", n)
			}
		})
	}
}

func TestTheNodeHashIsOfTheContent(t *testing.T) {
	a, _ := config.LoadNode([]byte(`{"nodeconfig":[{"name":"a"}]}`))
	b, _ := config.LoadNode([]byte("nodeconfig:\n- name: a\n"))
	c, _ := config.LoadNode([]byte(`{"nodeconfig":[{"name":"b"}]}`))
	if a.Hash() != b.Hash() || a.Hash() == c.Hash() {
		t.Errorf("got %s, %s, %s", a.Hash(), b.Hash(), c.Hash())
	}
}

func TestARuleForAModelHoldsForNoModelWhoseNameBeginsTheSame(t *testing.T) {
	n, problems := config.LoadNode([]byte(`{"nodeconfig": [{"name": "n", "devices": [{"model": "a10", "mode": "mps"}, {"model": "H20", "mode": "mig"}]}]}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for model, want := range map[string]sharing.Mode{
		"NVIDIA A10": sharing.MPS, "NVIDIA A100-SXM4-80GB": sharing.HAMiCore, "NVIDIA A10G": sharing.HAMiCore,
		"NVIDIA H20": sharing.MIG, "NVIDIA H200": sharing.HAMiCore,
	} {
		if got := n.For("n").Device(config.DefaultDevice(), "GPU-1", 0, model).Mode; got != want {
			t.Errorf("%s: mode %s, want %s", model, got, want)
		}
	}
	if _, problems := config.LoadNode([]byte(`{"nodeconfig": [{"name": "n", "devices": [{"model": " - ", "mode": "mps"}]}]}`)); len(problems) != 1 {
		t.Errorf("a model without words: %v", problems)
	}
}
