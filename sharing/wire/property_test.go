// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

const rounds = 200

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomInventory makes a valid inventory; lists that are empty are nil, as the
// decoder leaves them.
func randomInventory(r *rand.Rand) sharing.Inventory {
	inv := sharing.Inventory{Node: "n" + strconv.Itoa(r.IntN(9)), GeometryHash: pick(r, "", "h1")}
	index := 0
	for i := range r.IntN(9) {
		index += 1 + r.IntN(3)
		d := sharing.Device{
			ID: sharing.DeviceID("GPU-" + strconv.Itoa(i)), Index: index, Model: pick(r, "", "A,B:C;D", `Q"<>&é`, "NVIDIA-X"),
			Memory: sharing.Bytes(r.Int64N(1 << 40)), Cores: sharing.Percent(r.IntN(300)), MaxShares: r.IntN(20),
			Healthy: r.IntN(3) > 0, Mode: pick(r, sharing.Modes()...), NUMA: r.IntN(4) - 1, PCI: pick(r, "", "0000:07:00.0"),
		}
		if d.Virtual = r.IntN(3) == 0; d.Virtual {
			d.Licence = pick(r, sharing.LicenceUnknown, sharing.LicenceValid, sharing.LicenceMissing)
		}
		for range r.IntN(3) {
			d.Links = append(d.Links, sharing.Link{Peer: sharing.DeviceID("GPU-" + strconv.Itoa(r.IntN(9))), Kind: pick(r, "nvlink", "pix"), Count: r.IntN(65)})
		}
		if r.IntN(2) == 0 {
			d.MIG = randomPartitioning(r)
		}
		inv.Devices = append(inv.Devices, d)
	}
	return inv
}

func randomPartitioning(r *rand.Rand) *sharing.Partitioning {
	p := &sharing.Partitioning{Slices: 1 + r.IntN(16)}
	for i := range r.IntN(5) {
		q := sharing.Profile{
			Name: strconv.Itoa(i+1) + "g.5gb", Memory: 1 + sharing.Bytes(r.Int64N(1<<40)), Compute: r.IntN(8),
			Size: 1 + r.IntN(p.Slices), Max: r.IntN(8),
		}
		for start := r.IntN(2); start+q.Size <= p.Slices; start += 1 + r.IntN(3) {
			q.Starts = append(q.Starts, start)
		}
		p.Profiles = append(p.Profiles, q)
	}
	for i := range r.IntN(4) {
		g := sharing.Geometry{Name: "g" + strconv.Itoa(i)}
		for range r.IntN(4) {
			g.Entries = append(g.Entries, sharing.GeometryEntry{
				Profile: strconv.Itoa(r.IntN(5)+1) + "g.5gb", Memory: 1 + sharing.Bytes(r.Int64N(1<<40)), Count: 1 + r.IntN(7),
			})
		}
		p.Geometries = append(p.Geometries, g)
	}
	return p
}

func randomPlacement(r *rand.Rand) sharing.Placement {
	p := sharing.Placement{Node: "n1", Group: pick(r, "", "ns/g"), GeometryHash: pick(r, "", "h1")}
	for i := range r.IntN(5) {
		c := sharing.ContainerShares{Container: "c" + strconv.Itoa(i), Kind: pick(r, sharing.App, sharing.Init, sharing.Sidecar)}
		for j := range r.IntN(4) {
			s := sharing.Share{
				Device: sharing.DeviceID("GPU-" + strconv.Itoa(j)), Mode: pick(r, sharing.Modes()...),
				Memory: 1 + sharing.Bytes(r.Int64N(1<<40)), Cores: sharing.Percent(r.IntN(101)), Whole: r.IntN(4) == 0,
			}
			if s.Mode == sharing.MIG {
				s.Partition = sharing.Partition{
					Profile: "1g.5gb+me", Start: r.IntN(8), Size: 1 + r.IntN(8), Geometry: pick(r, "", "g1"), Position: r.IntN(8),
				}
			}
			c.Shares = append(c.Shares, s)
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

func TestAnyInventoryComesBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		inv := randomInventory(r)
		text, err := wire.EncodeInventory(inv)
		if err != nil {
			t.Fatalf("%v: %+v", err, inv)
		}
		got, err := wire.DecodeInventory(text)
		if err != nil || !reflect.DeepEqual(got, inv) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, inv)
		}
	}
}

func TestAnyPlacementComesBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range rounds {
		p := randomPlacement(r)
		text, err := wire.EncodePlacement(p)
		if err != nil {
			t.Fatalf("%v: %+v", err, p)
		}
		got, err := wire.DecodePlacement(text)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, p)
		}
	}
}

// The legacy text keeps devices, health, mode and memory in whole units, and says no
// more of a device than it has.
func TestLegacyTextNeverPromisesMoreThanThereIs(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range rounds {
		inv, factor := randomInventory(r), pick(r, int64(1), 7, 1024)
		got, err := wire.DecodeRegister(wire.EncodeRegister(inv, factor), factor)
		if err != nil || len(got.Devices) != len(inv.Devices) {
			t.Fatalf("%v: %+v", err, inv)
		}
		for i := range got.Devices {
			g, w := got.Devices[i], inv.Devices[i]
			if g.ID != w.ID || g.Mode != w.Mode || g.Healthy && !w.Healthy || g.Memory > w.Memory || g.MaxShares > w.MaxShares {
				t.Fatalf("got %+v of %+v", g, w)
			}
		}
	}
}

// The legacy text gives every app container its devices, and never less memory than
// it got.
func TestLegacyTextNeverCountsLessThanWasGiven(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range rounds {
		p, factor := randomPlacement(r), pick(r, int64(1), 7, 1024)
		for i := range p.Containers {
			for j := range p.Containers[i].Shares {
				if q := &p.Containers[i].Shares[j].Partition; q.Size > 0 {
					q.Geometry = "g1" // without one the legacy text has only a stand-in
				}
			}
		}
		var refs []wire.ContainerRef
		for _, c := range p.Containers {
			refs = append(refs, wire.ContainerRef{Name: c.Container, Kind: c.Kind, Asks: true})
		}
		got, err := wire.DecodeAssigned(wire.EncodeAssigned(p, factor, refs...), refs, nil, factor)
		if err != nil {
			t.Fatalf("%v: %+v", err, p)
		}
		for _, c := range p.Containers {
			if c.Kind != sharing.App || len(c.Shares) == 0 {
				continue
			}
			back, ok := got.Container(c.Container)
			if !ok || len(back.Shares) != len(c.Shares) {
				t.Fatalf("container %s of %+v came back as %+v", c.Container, p, got)
			}
			for i, s := range c.Shares {
				g := back.Shares[i]
				if g.Device != s.Device || g.Memory < s.Memory || g.Cores != s.Cores || g.Partition.Position != s.Partition.Position {
					t.Fatalf("got %+v of %+v", g, s)
				}
			}
		}
	}
}

// Bytes changed at random give a value or an error, and nothing else.
func TestDamagedTextsNeverPanic(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	inv := node1()
	a, err := wire.PlacementAnnotations(pod1(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	n, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for range 500 {
		for _, text := range []string{n[wire.NodeInventory], n[wire.NodeRegister], a[wire.PodPlacement], a[wire.PodAssigned]} {
			b := []byte(text)
			for range 1 + r.IntN(4) {
				switch at := r.IntN(len(b)); r.IntN(3) {
				case 0:
					b[at] = byte(r.IntN(256))
				case 1:
					b = append(b[:at], b[at+1:]...)
				default:
					b[at] = text[r.IntN(len(text))]
				}
			}
			if !survives(t, string(b), &inv) {
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("no damaged text was refused")
	}
}

// survives feeds a text to every decoder and reports whether all accepted it.
func survives(t *testing.T, text string, inv *sharing.Inventory) bool {
	i, err1 := wire.DecodeInventory(text)
	p, err2 := wire.DecodePlacement(text)
	q, err3 := wire.DecodeRegister(text, 1)
	s, err4 := wire.DecodeAssigned(text, refs(), inv, 1)
	empty := sharing.Inventory{}
	if err1 != nil && !reflect.DeepEqual(i, empty) || err2 != nil && len(p.Containers) > 0 ||
		err3 != nil && len(q.Devices) > 0 || err4 != nil && len(s.Containers) > 0 {
		t.Fatalf("half-read: %q", text)
	}
	return err1 == nil && err2 == nil && err3 == nil && err4 == nil
}
