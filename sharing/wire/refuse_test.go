// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// edit replaces a piece of a valid text.
type edit struct{ old, new string }

func edited(t *testing.T, text string, e edit) string {
	t.Helper()
	if !strings.Contains(text, e.old) {
		t.Fatalf("the text has no %s: %s", e.old, text)
	}
	return strings.Replace(text, e.old, e.new, 1)
}

// refused checks that an error is a *wire.Error with a place and a reason.
func refused(t *testing.T, err error, at, why string) {
	t.Helper()
	var e *wire.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a *wire.Error", err)
	}
	if !strings.Contains(e.At, at) || !strings.Contains(e.Why, why) {
		t.Errorf("got %q at %q, want %q at %q", e.Why, e.At, why, at)
	}
}

// many is thirty members that no reader knows.
func many() string {
	var b strings.Builder
	for i := range 30 {
		b.WriteString(`,"k` + strconv.Itoa(i) + `":[]`)
	}
	return b.String()
}

func TestInventoryTextsThatAreRefused(t *testing.T) {
	text, err := wire.EncodeInventory(node1())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		edit
		at, why string
	}{
		"a later version":           {edit{`"version":1`, `"version":2`}, "version", "not known"},
		"no version":                {edit{`"version":1,`, ``}, "version", "missing"},
		"a version as text":         {edit{`"version":1`, `"version":"1"`}, "version", `"1" is not known`},
		"no node":                   {edit{`"node":"node1"`, `"node":""`}, "node", "not a node name"},
		"something behind":          {edit{`]}]}}`, `]}]}} x`}, "byte", "invalid character"},
		"another value behind":      {edit{`"numa":-1}]}`, `"numa":-1}]} {}`}, "byte", "after top-level value"},
		"the end missing":           {edit{`"numa":-1}]}`, `"numa":-1}]`}, "byte", "too early"},
		"a key twice":               {edit{`"index":0`, `"index":0,"index":1`}, "devices[0].index", "twice"},
		"a key twice in two cases":  {edit{`"index":0`, `"index":0,"INDEX":1`}, "devices[0].INDEX", "twice"},
		"an unknown key twice":      {edit{`"index":0`, `"index":0,"x":1,"x":1`}, "devices[0].x", "twice"},
		"a key twice by an escape":  {edit{`"index":0`, `"index":0,"\u0069ndex":1`}, "devices[0].index", "twice"},
		"a key twice by a long s":   {edit{`"maxShares":10`, `"maxShares":10,"maxſhares":1`}, "devices[0].maxſhares", "twice"},
		"a key twice among many":    {edit{`"index":0`, `"index":0` + many() + `,"k29":1`}, "devices[0].k29", "twice"},
		"null":                      {edit{`"index":0`, `"index":null`}, "devices[0].index", "null"},
		"a number as text":          {edit{`"memory":85899345920`, `"memory":"80G"`}, "memory", "is a string"},
		"a number with a fraction":  {edit{`"index":0`, `"index":0.5`}, "index", "number 0.5"},
		"a number out of 64 bits":   {edit{`85899345920`, `99999999999999999999`}, "memory", "number 99999999999999999999"},
		"negative memory":           {edit{`85899345920`, `-1`}, "devices[0].memory", "outside"},
		"no memory":                 {edit{`"memory":85899345920,`, ``}, "devices[0].memory", "missing"},
		"no index":                  {edit{`"index":0,`, ``}, "devices[0].index", "missing"},
		"no health":                 {edit{`"healthy":true,`, ``}, "devices[0].healthy", "missing"},
		"a reason of two lines":     {edit{`"healthy":true,`, `"healthy":false,"reason":"a\nb",`}, "devices[0].reason", "line"},
		"no compute":                {edit{`"cores":100,`, ``}, "devices[0].cores", "missing"},
		"a mode nobody knows":       {edit{`"mode":"hami-core"`, `"mode":"hami"`}, "devices[0].mode", "unknown mode"},
		"absurd compute":            {edit{`"cores":100`, `"cores":1000000`}, "devices[0].cores", "outside"},
		"absurd sharers":            {edit{`"maxShares":10`, `"maxShares":1000000`}, "devices[0].maxShares", "outside"},
		"a NUMA node of -2":         {edit{`"numa":0`, `"numa":-2`}, "devices[0].numa", "outside"},
		"an index twice":            {edit{`"index":2`, `"index":0`}, "devices[1].index", "ascending"},
		"a device twice":            {edit{`{"uuid":"` + idB, `{"uuid":"` + idA}, "devices[1].uuid", "twice"},
		"a UUID with a comma":       {edit{`{"uuid":"` + idA, `{"uuid":"GPU,1`}, "devices[0].uuid", "not a device UUID"},
		"a line break in a model":   {edit{`NVIDIA A100`, `NVIDIA\nA100`}, "devices[0].model", "not a model name"},
		"a link to nowhere":         {edit{`"peer":"` + idB, `"peer":"`}, "devices[0].links[0].peer", "not a device UUID"},
		"no slices":                 {edit{`"slices":8`, `"slices":0`}, "devices[1].mig.slices", "outside"},
		"a profile beyond the end":  {edit{`"starts":[0,2,4]`, `"starts":[0,2,7]`}, "devices[1].mig.profiles[2].starts[2]", "outside 0 to 6"},
		"starts out of order":       {edit{`"starts":[0,2,4]`, `"starts":[0,4,2]`}, "devices[1].mig.profiles[2].starts[2]", "ascending"},
		"a profile twice":           {edit{`"name":"1g.10gb+me"`, `"name":"1g.10gb"`}, "devices[1].mig.profiles[1].name", "twice"},
		"a profile of no memory":    {edit{`"name":"2g.20gb","memory":20937965568`, `"name":"2g.20gb","memory":0`}, "devices[1].mig.profiles[2].memory", "outside"},
		"a geometry twice":          {edit{`"name":"group2"`, `"name":"group1"`}, "devices[1].mig.geometries[1].name", "twice"},
		"a geometry with a dash":    {edit{`"name":"group2"`, `"name":"group-2"`}, "devices[1].mig.geometries[1].name", "not a group name"},
		"an entry of no partitions": {edit{`"count":7`, `"count":0`}, "devices[1].mig.geometries[0].entries[0].count", "outside"},
		"a policy nobody knows":     {edit{`"slices":8`, `"slices":8,"policy":"worst-fit"`}, "devices[1].mig.policy", "unknown policy"},
		"a policy as a number":      {edit{`"slices":8`, `"slices":8,"policy":1`}, "policy", "is a number"},
		"a list where a map is due": {edit{`"mig":{"slices":8`, `"mig":[],"x":{"slices":8`}, "mig", "is a array"},
	} {
		t.Run(name, func(t *testing.T) {
			inv, err := wire.DecodeInventory(edited(t, text, c.edit))
			refused(t, err, c.at, c.why)
			if !reflect.DeepEqual(inv, sharing.Inventory{}) {
				t.Errorf("half-read: %+v", inv)
			}
		})
	}
}

func TestPlacementTextsThatAreRefused(t *testing.T) {
	text, err := wire.EncodePlacement(pod1())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		edit
		at, why string
	}{
		"a later version":                {edit{`"version":1`, `"version":9`}, "version", "not known"},
		"no node":                        {edit{`"node":"node1",`, ``}, "node", "not a node name"},
		"a container without a name":     {edit{`"name":"main",`, ``}, "containers[2].name", "not a container name"},
		"a container twice":              {edit{`"name":"main"`, `"name":"load"`}, "containers[2].name", "twice"},
		"an unknown kind":                {edit{`"kind":"init"`, `"kind":"ephemeral"`}, "containers[0].kind", "not app"},
		"no kind":                        {edit{`"kind":"init",`, ``}, "containers[0].kind", "not app"},
		"a share without memory":         {edit{`"memory":536870912,`, ``}, "containers[0].shares[0].memory", "missing"},
		"a share of no memory":           {edit{`536870912`, `0`}, "containers[0].shares[0].memory", "outside"},
		"compute of more than a device":  {edit{`"cores":10`, `"cores":101`}, "containers[0].shares[0].cores", "outside"},
		"an unknown mode":                {edit{`"mode":"hami-core"`, `"mode":"none"`}, "containers[0].shares[0].mode", "unknown mode"},
		"mode mig without a partition":   {edit{`"mode":"hami-core"`, `"mode":"mig"`}, "containers[0].shares[0].partition", "missing"},
		"a partition in another mode":    {edit{`"mode":"mig"`, `"mode":"mps"`}, "containers[2].shares[1].partition", "is there"},
		"a partition without a start":    {edit{`"start":2,`, ``}, "containers[2].shares[1].partition.start", "missing"},
		"a partition without a size":     {edit{`"size":2,`, ``}, "containers[2].shares[1].partition.size", "missing"},
		"a partition of no size":         {edit{`"size":2`, `"size":0`}, "containers[2].shares[1].partition.size", "outside"},
		"a partition beyond any device":  {edit{`"size":2`, `"size":63`}, "containers[2].shares[1].partition.size", "outside 1 to 14"},
		"a start beyond any device":      {edit{`"start":2`, `"start":64`}, "containers[2].shares[1].partition.start", "outside 0 to 15"},
		"a position beyond any device":   {edit{`"position":2`, `"position":1024`}, "containers[2].shares[1].partition.position", "outside 0 to 1023"},
		"a negative position":            {edit{`"position":2`, `"position":-2`}, "containers[2].shares[1].partition.position", "outside"},
		"a partition without a profile":  {edit{`"profile":"2g.20gb",`, ``}, "containers[2].shares[1].partition.profile", "not a profile"},
		"a geometry with a bracket":      {edit{`"group2"`, `"group[2"`}, "containers[2].shares[1].partition.geometry", "not a group name"},
		"a device twice for a container": {edit{`{"uuid":"` + idB, `{"uuid":"` + idA}, "containers[2].shares[1].uuid", "twice"},
		"whole as text":                  {edit{`"whole":true`, `"whole":"yes"`}, "whole", "is a string"},
		"a control character in a group": {edit{`default/train`, `default\u0000train`}, "group", "not a group name"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := wire.DecodePlacement(edited(t, text, c.edit))
			refused(t, err, c.at, c.why)
			if !reflect.DeepEqual(p, sharing.Placement{}) {
				t.Errorf("half-read: %+v", p)
			}
		})
	}
}

func TestTextsThatAreNotEvenJSONObjects(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "a space": " ", "null": "null", "a list": "[]", "a text": `"x"`, "a number": "1", "the legacy text": "GPU-a,10,1,NVIDIA-x,true,mig:",
		"an open brace": "{", "a key alone": `{"version"`, "no quotes": "{version:1}", "a comma too many": `{"version":1,}`,
		"broken UTF-8": "{\"version\":1,\"node\":\"\xff\"}", "too long": `{"x":"` + strings.Repeat("x", wire.MaxText) + `"}`,
		"too deep": `{"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", "a huge number": `{"version":1e999}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.DecodeInventory(text)
			refused(t, err, "", "")
			_, err = wire.DecodePlacement(text)
			refused(t, err, "", "")
		})
	}
}

func TestWhatALaterWriterAddsIsSkipped(t *testing.T) {
	text, _ := wire.EncodeInventory(node1())
	got, err := wire.DecodeInventory(edited(t, text, edit{`"index":0`, `"index":0,"colour":{"rgb":[1,2,3]}`}))
	if err != nil || !reflect.DeepEqual(got, node1()) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestWhatADecoderRefusesIsNotEncoded(t *testing.T) {
	p := pod1()
	p.Containers[0].Shares[0].Memory = 0
	_, err := wire.EncodePlacement(p)
	refused(t, err, "containers[0].shares[0].memory", "outside")
	if a, err := wire.PlacementAnnotations(p, 1, 1); err == nil {
		t.Errorf("got %v", a)
	}
	unresolved := pod1()
	unresolved.Containers[2].Shares[1].Partition = sharing.Partition{Geometry: "group1", Position: 1}
	_, err = wire.EncodePlacement(unresolved)
	refused(t, err, "partition", "")
	inv := node1()
	inv.Devices[1].Index = 0
	_, err = wire.EncodeInventory(inv)
	refused(t, err, "devices[1].index", "ascending")
	if a, err := wire.NodeAnnotations(inv, 1); err == nil {
		t.Errorf("got %v", a)
	}
	large := sharing.Inventory{Node: "n"}
	for i := range 1000 {
		d := node1().Devices[1]
		d.ID, d.Index = sharing.DeviceID("GPU-"+strings.Repeat("x", i%90)+string(rune('a'+i/90))), i
		d.MIG, d.Mode, d.Model = nil, sharing.HAMiCore, strings.Repeat("m", 256)
		large.Devices = append(large.Devices, d)
	}
	_, err = wire.EncodeInventory(large)
	refused(t, err, "", "bytes long")
}

func TestANUMANodeThatIsNotSaidIsNotKnown(t *testing.T) {
	text, _ := wire.EncodeInventory(node1())
	got, err := wire.DecodeInventory(edited(t, text, edit{`"numa":0,`, ``}))
	if err != nil || got.Devices[0].NUMA != -1 || got.Devices[1].NUMA != 1 {
		t.Errorf("%+v, %v", got.Devices, err)
	}
}

// What nobody's hardware has would make every decision about the node slow.
func TestANodeOfMoreGeometriesThanAnyCardHasIsRefused(t *testing.T) {
	cut := func(profiles, geometries int) *sharing.Partitioning {
		p := &sharing.Partitioning{Slices: 8}
		for i := range profiles {
			p.Profiles = append(p.Profiles, sharing.Profile{Name: fmt.Sprintf("1g.%dgb", i+1), Memory: sharing.GiB, Size: 1, Starts: []int{0}})
		}
		for i := range geometries {
			p.Geometries = append(p.Geometries, sharing.Geometry{Name: fmt.Sprint("g", i), Entries: []sharing.GeometryEntry{{Profile: "1g.1gb", Memory: sharing.GiB, Count: 1}}})
		}
		return p
	}
	for name, c := range map[string]struct {
		devices, profiles, geometries int
		want                          string
	}{
		"as many as may be":               {16, 32, 32, ""},
		"too many of one device":          {1, 1, 33, "devices[0].mig.geometries: there are 33, want at most 32"},
		"too many profiles":               {1, 33, 1, "devices[0].mig.profiles: there are 33, want at most 32"},
		"too many of all devices at once": {17, 1, 32, "devices: they have 544 geometries, want at most 512"},
	} {
		inv := sharing.Inventory{Node: "n"}
		for i := range c.devices {
			inv.Devices = append(inv.Devices, sharing.Device{
				ID: sharing.DeviceID(fmt.Sprint("GPU-", i)), Index: i, Memory: sharing.GiB, Cores: 100, MaxShares: 1, Mode: sharing.MIG, NUMA: -1, MIG: cut(c.profiles, c.geometries),
			})
		}
		_, err := wire.EncodeInventory(inv) // it reads what it has written
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
