// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestANodeTypeIsReadAsItWasWritten(t *testing.T) {
	inv := cards("n1", 2)
	for i := range inv.Devices {
		inv.Devices[i].Links = []sharing.Link{{Peer: inv.Devices[1-i].ID, Kind: "nvlink", Count: 12}}
	}
	n := nodeOf(t, "big", inv)
	started := metav1.NewTime(time.Unix(1700000000, 0))
	n.Spec.Taints = []corev1.Taint{
		{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &started}, {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
	}
	said, err := TypeOf("big", n, &inv)
	if err != nil {
		t.Fatal(err)
	}
	text, err := said.Text()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseType("big", text, settings())
	if err != nil {
		t.Fatal(err)
	}
	if read.LearnedFrom != "n1" || !reflect.DeepEqual(read.Inventory, said.Inventory) {
		t.Errorf("read %+v\nwrote %+v", read, said)
	}
	again, err := read.Text()
	if err != nil || again != text {
		t.Errorf("written again, %v:\n%s\nbefore\n%s", err, again, text)
	}
	for _, own := range []string{"n1\"", "GPU-n1", "0000:", corev1.LabelHostname, corev1.TaintNodeNotReady, "timeAdded"} {
		if strings.Contains(text, own) {
			t.Errorf("the type has %q of one node:\n%s", own, text)
		}
	}
	if got := read.Inventory.Devices[0].Links; len(got) != 1 || got[0].Peer != read.Inventory.Devices[1].ID {
		t.Errorf("device 0 is linked to %v", got)
	}
}

func TestMistakesInANodeTypeAreToldAllAtOnce(t *testing.T) {
	for text, want := range map[string][]string{
		"": {
			"node type big: version: is 0, want 1", "node type big: node.status.allocatable[volcano.sh/vgpu-number]: is missing: nodes of this type would offer no devices",
			"node type big: node.metadata.annotations[volcano.sh/node-vgpu-inventory]: is missing: copy it from a node of another cluster"},
		"version: 2\nnode: {metadata: {annotations: {volcano.sh/node-vgpu-inventory: x}}, status: {allocatable: {volcano.sh/vgpu-number: 0}}}": {
			"version: is 2", "allocatable[volcano.sh/vgpu-number]: is missing", "node.metadata.annotations: node inventory: "},
		"version: 1\nnodes: {}":                        {`unknown field "nodes"`},
		"version: 1\nnode: {status: {capacitty: {}}}":  {`unknown field "node.status.capacitty"`},
		"version: 1\nnode: [":                          {"node type big: "},
		"version: 1\nversion: 1\nnode: {}":             {`key "version" already set`},
		"version: one\nnode: {metadata: {name: true}}": {"cannot unmarshal"},
	} {
		_, err := ParseType("big", text, settings())
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v\nwant %q", text, err, part)
			}
		}
	}
}

func FuzzParseType(f *testing.F) {
	for _, n := range []int{1, 8} {
		said := typeOf(f, "big", cards("n", n))
		text, err := said.Text()
		if err != nil {
			f.Fatal(err)
		}
		f.Add("big", text)
	}
	f.Add("", "version: 1\nnode: {spec: {taints: [{}]}}")
	f.Fuzz(func(t *testing.T, name, text string) {
		read, err := ParseType(name, text, settings())
		if err != nil {
			return
		}
		again, err := read.Text()
		if err != nil {
			t.Fatal(err)
		}
		if second, err := ParseType(name, again, settings()); err != nil || offerText(second.Inventory) != offerText(read.Inventory) {
			t.Errorf("read again: %v\n%s", err, again)
		}
		Decide(question(pods(t, 1, 1, 0, 0), []NodeType{read}))
	})
}

func TestTypesAreLearnedFromNodesThatAreComplete(t *testing.T) {
	big, broken, cordoned, waits, other := seen(t, "big", cards("n2", 8)), seen(t, "mended", cards("n3", 8)), seen(t, "cordoned", cards("n4", 8)), seen(t, "late", cards("n5", 8)), seen(t, "", cards("n6", 1))
	broken.Inventory.Devices[7].Healthy = false
	cordoned.Inventory.Devices[0].Cordon = &sharing.Cordon{}
	waits.TakesPods = false
	k := Learn(nil, []Seen{broken, big, cordoned, waits, other, seen(t, "big", cards("n1", 8))}, instance, settings())
	if len(k.Types) != 1 || k.Types[0].Name != "big" || k.Types[0].LearnedFrom != "n1" || len(k.Problems) > 0 {
		t.Fatalf("learned %+v, problems %q", k.Types, k.Problems)
	}
	next := Learn(k.Write, []Seen{big}, instance, settings())
	if len(next.Write) > 0 || len(next.Types) != 1 {
		t.Errorf("what is written is written again: %v", slices.Collect(maps.Keys(next.Write)))
	}
	if gone := Learn(k.Write, nil, instance, settings()); len(gone.Types) != 1 {
		t.Errorf("without nodes there are %d types", len(gone.Types))
	}
}

// Nodes of one type that differ must not have the text written back and forth.
func TestALearnedTypeStaysWhileANodeIsLikeIt(t *testing.T) {
	few, many := seen(t, "big", cards("a", 4)), seen(t, "big", cards("b", 8))
	texts := Learn(nil, []Seen{many}, instance, settings()).Write
	if k := Learn(texts, []Seen{few, many}, instance, settings()); len(k.Write) > 0 || len(k.Types[0].Inventory.Devices) != 8 {
		t.Errorf("written again: %v", k.Write)
	}
	k := Learn(texts, []Seen{few}, instance, settings())
	if len(k.Types[0].Inventory.Devices) != 4 || k.Write["big"] == "" || len(k.Problems) > 0 {
		t.Errorf("all nodes are others, and the type is %+v, problems %q", k.Types[0], k.Problems)
	}
}

func TestWhatPeopleWroteIsNotChangedAndWhatNodesOfferCounts(t *testing.T) {
	said := typeOf(t, "big", cards("x", 8))
	said.LearnedFrom = ""
	text, err := said.Text()
	if err != nil {
		t.Fatal(err)
	}
	k := Learn(map[string]string{"big": text, "odd": "version: 7"}, []Seen{seen(t, "big", cards("n1", 4)), seen(t, "odd", cards("n2", 2))}, instance, settings())
	if len(k.Write) > 0 {
		t.Errorf("writes %v", k.Write)
	}
	if len(k.Types) != 2 || len(k.Types[0].Inventory.Devices) != 4 || len(k.Types[1].Inventory.Devices) != 2 {
		t.Errorf("types %+v", k.Types)
	}
	const differs = "node type big: node.metadata.annotations: n1 of this type offers 4 devices, the first NVIDIA A100-SXM4-80GB with 81920 MiB and 10 slots in mode hami-core, " +
		"here stands 8 devices, the first NVIDIA A100-SXM4-80GB with 81920 MiB and 10 slots in mode hami-core: what the node offers counts"
	if len(k.Problems) != 2 || !strings.HasPrefix(k.Problems[0], "node type odd: version: is 7, want 1") || k.Problems[1] != differs {
		t.Errorf("problems %q", k.Problems)
	}
}

func TestATypeSaysNothingOfVolcanosOwnAnnotation(t *testing.T) {
	said := typeOf(t, "big", cards("x", 8))
	if _, has := said.Node.Annotations[wire.NodeRegister]; has {
		t.Error("the type has the annotation of Volcano's own scheduler, which is in a unit of its own")
	}
}

// A licence comes and goes; that a device is virtual stays.
func TestALicenceIsNoPartOfAType(t *testing.T) {
	guests := func(node string, l sharing.Licence) sharing.Inventory {
		inv := cards(node, 2)
		for i := range inv.Devices {
			inv.Devices[i].Virtual, inv.Devices[i].Licence = true, l
		}
		return inv
	}
	texts := Learn(nil, []Seen{seen(t, "guest", guests("a", sharing.LicenceMissing))}, instance, settings()).Write
	k := Learn(texts, []Seen{seen(t, "guest", guests("b", sharing.LicenceValid))}, instance, settings())
	if len(k.Write) > 0 || len(k.Problems) > 0 || !k.Types[0].Inventory.Devices[1].Virtual {
		t.Errorf("writes %v, problems %q, type %+v", k.Write, k.Problems, k.Types[0].Inventory)
	}
	if k := Learn(texts, []Seen{seen(t, "guest", cards("c", 2))}, instance, settings()); len(k.Write) != 1 {
		t.Errorf("devices of the machine itself are as virtual ones: %v", k.Write)
	}
}
