// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"reflect"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestRegisterTextsThatAreRead(t *testing.T) {
	device := func(id string, index int, edits ...func(*sharing.Device)) sharing.Device {
		d := sharing.Device{
			ID: sharing.DeviceID(id), Index: index, Model: "NVIDIA A100", Memory: 81920 * sharing.MiB, Cores: 100,
			MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
		}
		for _, e := range edits {
			e(&d)
		}
		return d
	}
	for name, c := range map[string]struct {
		text   string
		factor int64
		want   []sharing.Device
	}{
		"nothing":                     {"", 1, nil},
		"one device":                  {"GPU-a,10,81920,NVIDIA-NVIDIA A100,true,hami-core:", 1, []sharing.Device{device("GPU-a", 0)}},
		"without the colon behind":    {"GPU-a,10,81920,NVIDIA-NVIDIA A100,true,hami-core", 1, []sharing.Device{device("GPU-a", 0)}},
		"memory in units":             {"GPU-a,10,8192,NVIDIA-NVIDIA A100,true,hami-core:", 10, []sharing.Device{device("GPU-a", 0)}},
		"five fields are hami-core":   {"GPU-a,10,81920,NVIDIA-NVIDIA A100,true:", 1, []sharing.Device{device("GPU-a", 0)}},
		"further fields are skipped":  {"GPU-a,10,81920,NVIDIA-NVIDIA A100,true,hami-core,7,x:", 1, []sharing.Device{device("GPU-a", 0)}},
		"two devices, two modes":      {"GPU-a,10,81920,NVIDIA-NVIDIA A100,true,hami-core:GPU-b,10,81920,NVIDIA-NVIDIA A100,true,mig:", 1, []sharing.Device{device("GPU-a", 0), device("GPU-b", 1, func(d *sharing.Device) { d.Mode = sharing.MIG })}},
		"a device that is unhealthy":  {"GPU-a,10,81920,NVIDIA-NVIDIA A100,false,hami-core:", 1, []sharing.Device{device("GPU-a", 0, func(d *sharing.Device) { d.Healthy = false })}},
		"count 0 means unhealthy too": {"GPU-a,0,81920,NVIDIA-NVIDIA A100,true,hami-core:", 1, []sharing.Device{device("GPU-a", 0, func(d *sharing.Device) { d.Healthy, d.MaxShares = false, 0 })}},
		"a type without the prefix":   {"GPU-a,10,81920,Foo,true,hami-core:", 1, []sharing.Device{device("GPU-a", 0, func(d *sharing.Device) { d.Model = "Foo" })}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wire.DecodeRegister(c.text, c.factor)
			if err != nil || !reflect.DeepEqual(got, sharing.Inventory{Devices: c.want}) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestRegisterTextsThatAreRefused(t *testing.T) {
	const good = "GPU-a,10,81920,NVIDIA-X,true,hami-core:"
	for name, c := range map[string]struct{ text, at, why string }{
		"too few fields":           {good + "GPU-b,10,1,NVIDIA-X:", "byte 39", "has 4 fields"},
		"an empty device":          {good + ":" + good, "byte 39", "an empty device"},
		"only a colon":             {":", "byte 0", "an empty device"},
		"free text":                {"what is this", "byte 0", "fields"},
		"no UUID":                  {",10,81920,NVIDIA-X,true,hami-core:", "byte 0", "not a device UUID"},
		"a UUID with a bracket":    {"GPU-a[1],10,81920,NVIDIA-X,true,hami-core:", "byte 0", "not a device UUID"},
		"a device twice":           {good + good, "byte 39", "twice"},
		"a negative count":         {"GPU-a,-1,81920,NVIDIA-X,true,hami-core:", "byte 0", `count "-1" is not a number`},
		"a count with a sign":      {"GPU-a,+1,81920,NVIDIA-X,true,hami-core:", "byte 0", `count "+1" is not a number`},
		"an absurd count":          {"GPU-a,9999999,81920,NVIDIA-X,true,hami-core:", "byte 0", "is more than"},
		"memory that is no number": {"GPU-a,10,80G,NVIDIA-X,true,hami-core:", "byte 0", `memory "80G" is not a number`},
		"memory that overflows":    {"GPU-a,10,9223372036854775807,NVIDIA-X,true,hami-core:", "byte 0", "more than any device has"},
		"health in other words":    {"GPU-a,10,81920,NVIDIA-X,ok,hami-core:", "byte 0", "not true or false"},
		"an unknown mode":          {"GPU-a,10,81920,NVIDIA-X,true,vgpu:", "byte 0", "unknown mode"},
		"an empty mode":            {"GPU-a,10,81920,NVIDIA-X,true,:", "byte 0", "unknown mode"},
	} {
		t.Run(name, func(t *testing.T) {
			inv, err := wire.DecodeRegister(c.text, 1)
			refused(t, err, c.at, c.why)
			if len(inv.Devices) > 0 {
				t.Errorf("half-read: %+v", inv)
			}
		})
	}
}

// refs are an init container and four app containers, of which one asks for
// nothing.
func refs() []wire.ContainerRef {
	return []wire.ContainerRef{
		{Name: "load", Kind: sharing.Init, Asks: true}, {Name: "plain"}, {Name: "a", Asks: true}, {Name: "b", Asks: true}, {Name: "c", Asks: true},
	}
}

func TestAssignedTextsAreReadByTheContainersThatAsk(t *testing.T) {
	got, err := wire.DecodeAssigned("GPU-x,NVIDIA,100,30:GPU-y,NVIDIA,100,30:;;GPU-x[group1-3],NVIDIA,50,0:", refs(), nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := sharing.Placement{Containers: []sharing.ContainerShares{
		{Container: "a", Shares: []sharing.Share{
			{Device: "GPU-x", Mode: sharing.HAMiCore, Memory: 1000 * sharing.MiB, Cores: 30},
			{Device: "GPU-y", Mode: sharing.HAMiCore, Memory: 1000 * sharing.MiB, Cores: 30},
		}},
		{Container: "c", Shares: []sharing.Share{
			{Device: "GPU-x", Mode: sharing.MIG, Memory: 500 * sharing.MiB, Partition: sharing.Partition{Geometry: "group1", Position: 3}},
		}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got, err := wire.DecodeAssigned("", nil, nil, 1); err != nil || len(got.Containers) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = wire.DecodeAssigned(";GPU-x,NVIDIA,1,0:;", []wire.ContainerRef{{Name: "zero"}, {Name: "a", Asks: true}, {Name: "zero too"}}, nil, 1)
	if err != nil || len(got.Containers) != 1 || got.Containers[0].Container != "a" {
		t.Errorf("an empty entry of a container that asks for 0 is in the way: %+v, %v", got, err)
	}
	one := []wire.ContainerRef{{Name: "zero", Asks: true}}
	if got, err := wire.DecodeAssigned("", one, nil, 1); err != nil || len(got.Containers) > 0 {
		t.Errorf("a container with number 0 has the empty text as its entry: %+v, %v", got, err)
	}
}

func TestAssignedTextsThatAreRefused(t *testing.T) {
	one := []wire.ContainerRef{{Name: "a", Asks: true}}
	two := append(one, wire.ContainerRef{Name: "b", Asks: true})
	for name, c := range map[string]struct {
		text    string
		refs    []wire.ContainerRef
		at, why string
	}{
		"an entry too few":            {"GPU-x,NVIDIA,1,0:", two, "", "1 entries for 2 containers"},
		"one too few beside empty":    {";;GPU-x,NVIDIA,1,0:", two, "", "1 entries for 2 containers"},
		"an entry too many":           {"GPU-x,NVIDIA,1,0:;GPU-x,NVIDIA,1,0:", one, "", "2 entries for 1 containers"},
		"an entry for nobody":         {"GPU-x,NVIDIA,1,0:", nil, "", "1 entries for 0 containers"},
		"too few fields":              {";GPU-x,NVIDIA,1:", two, "byte 1", "has 3 fields"},
		"an empty device":             {"GPU-x,NVIDIA,1,0::", one, "byte 17", "an empty device"},
		"another device type":         {"GPU-x,MLU,1,0:", one, "byte 0", "not NVIDIA"},
		"no memory":                   {"GPU-x,NVIDIA,0,0:", one, "byte 0", "without memory"},
		"negative memory":             {"GPU-x,NVIDIA,-5,0:", one, "byte 0", "not a number"},
		"memory that overflows":       {"GPU-x,NVIDIA,99999999999999,0:", one, "byte 0", "more than any device has"},
		"compute of more than one":    {"GPU-x,NVIDIA,1,101:", one, "byte 0", "more than 100"},
		"a device twice":              {"GPU-x,NVIDIA,1,0:GPU-x,NVIDIA,1,0:", one, "byte 17", "twice"},
		"two partitions of a device":  {"GPU-x[g-0],NVIDIA,1,0:GPU-x[g-1],NVIDIA,1,0:", one, "byte 22", "twice"},
		"a bracket that stays open":   {"GPU-x[g-0,NVIDIA,1,0:", one, "byte 0", "not UUID[geometry-position]"},
		"a partition without a place": {"GPU-x[g],NVIDIA,1,0:", one, "byte 0", "not UUID[geometry-position]"},
		"a partition of no geometry":  {"GPU-x[-1],NVIDIA,1,0:", one, "byte 0", "not UUID[geometry-position]"},
		"a geometry with a dash":      {"GPU-x[g-1-2],NVIDIA,1,0:", one, "byte 0", "position"},
		"a position that is no place": {"GPU-x[g-x],NVIDIA,1,0:", one, "byte 0", "position"},
		"a position beyond any":       {"GPU-x[g-1024],NVIDIA,1,0:", one, "byte 0", "position"},
		"no UUID":                     {"[g-1],NVIDIA,1,0:", one, "byte 0", "not a device UUID"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := wire.DecodeAssigned(c.text, c.refs, nil, 1<<30)
			refused(t, err, c.at, c.why)
			if len(p.Containers) > 0 {
				t.Errorf("half-read: %+v", p)
			}
		})
	}
}

func TestWhatTheInventoryAddsToTheLegacyText(t *testing.T) {
	inv := node1()
	bare := node1()
	bare.Devices[1].MIG = nil
	unlisted := node1()
	unlisted.Devices[1].MIG = &sharing.Partitioning{Slices: 8}
	free := node1()
	free.Devices[1].MIG.Geometries = nil
	one := []wire.ContainerRef{{Name: "a", Asks: true}}
	for name, c := range map[string]struct {
		inv  *sharing.Inventory
		text string
		want sharing.Share
	}{
		"the mode of the device": {&inv, idC + ",NVIDIA,100,0:", sharing.Share{Device: idC, Mode: sharing.TimeSlicing, Memory: 100 * sharing.MiB}},
		"profile, place and memory of a partition": {
			&inv, idB + "[group1-3],NVIDIA,5000,0:",
			sharing.Share{Device: idB, Mode: sharing.MIG, Memory: 9728 * sharing.MiB, Partition: sharing.Partition{Profile: "1g.10gb", Start: 3, Size: 1, Geometry: "group1", Position: 3}},
		},
		"positions count as written, places largest first": {
			&inv, idB + "[group2-0],NVIDIA,5000,0:",
			sharing.Share{Device: idB, Mode: sharing.MIG, Memory: 9728 * sharing.MiB, Partition: sharing.Partition{Profile: "1g.10gb", Start: 6, Size: 1, Geometry: "group2", Position: 0}},
		},
		"the memory of the hardware where the administrator lists less": {
			&inv, idB + "[small-1],NVIDIA,5000,0:",
			sharing.Share{Device: idB, Mode: sharing.MIG, Memory: 9728 * sharing.MiB, Partition: sharing.Partition{Profile: "1g.10gb", Start: 4, Size: 1, Geometry: "small", Position: 1}},
		},
		"the last position": {
			&inv, idB + "[group2-3],NVIDIA,5000,0:",
			sharing.Share{Device: idB, Mode: sharing.MIG, Memory: 19968 * sharing.MiB, Partition: sharing.Partition{Profile: "2g.20gb", Start: 4, Size: 2, Geometry: "group2", Position: 3}},
		},
		"a place that is found only by backing up": {
			&inv, idB + "[mixed-2],NVIDIA,5000,0:",
			sharing.Share{Device: idB, Mode: sharing.MIG, Memory: 40192 * sharing.MiB, Partition: sharing.Partition{Profile: "3g.40gb", Start: 4, Size: 4, Geometry: "mixed", Position: 2}},
		},
		"a partition where the administrator lists no geometry": {
			&free, idB + "[free-8],NVIDIA,5000,0:",
			sharing.Share{Device: idB, Mode: sharing.MIG, Memory: 9728 * sharing.MiB, Partition: sharing.Partition{Profile: "1g.10gb+me", Start: 1, Size: 1, Geometry: "free", Position: 8}},
		},
		"a device the node no longer has keeps what the text says": {
			&inv, "GPU-gone[g-1],NVIDIA,100,0:",
			sharing.Share{Device: "GPU-gone", Mode: sharing.MIG, Memory: 100 * sharing.MiB, Partition: sharing.Partition{Geometry: "g", Position: 1}},
		},
		"a device without partitioning keeps what the text says": {
			&bare, idB + "[group1-3],NVIDIA,5000,0:",
			sharing.Share{Device: idB, Mode: sharing.MIG, Memory: 5000 * sharing.MiB, Partition: sharing.Partition{Geometry: "group1", Position: 3}},
		},
		"and so does one whose profiles nobody knows": {
			&unlisted, idB + "[group1-3],NVIDIA,5000,0:",
			sharing.Share{Device: idB, Mode: sharing.MIG, Memory: 5000 * sharing.MiB, Partition: sharing.Partition{Geometry: "group1", Position: 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := wire.DecodeAssigned(c.text, one, c.inv, 1)
			if err != nil || len(p.Containers) != 1 || p.Containers[0].Shares[0] != c.want {
				t.Errorf("got %+v, %v\nwant %+v", p, err, c.want)
			}
		})
	}
	for name, c := range map[string]struct{ text, why string }{
		"a partition of a device in another mode": {idA + "[group1-0],NVIDIA,1,0:", "is in mode hami-core"},
		"no partition of a device in mode mig":    {idB + ",NVIDIA,1,0:", "is in mode mig"},
		"a geometry the device does not have":     {idB + "[group9-0],NVIDIA,1,0:", "has no partition 0 in a geometry group9"},
		"a position beyond the geometry":          {idB + "[group1-7],NVIDIA,1,0:", "has no partition 7 in a geometry group1"},
		"a geometry the device cannot take":       {idB + "[toomuch-0],NVIDIA,1,0:", "or cannot be cut that way"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.DecodeAssigned(c.text, one, &inv, 1)
			refused(t, err, "byte 0", c.why)
		})
	}
}
