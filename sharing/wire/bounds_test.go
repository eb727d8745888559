// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestTextsAreReadUpToTheirLongest(t *testing.T) {
	inv, err := wire.EncodeInventory(sharing.Inventory{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	padded := func(n int) string { return inv + strings.Repeat(" ", n-len(inv)) }
	if _, err := wire.DecodeInventory(padded(wire.MaxText)); err != nil {
		t.Errorf("a text of the greatest length: %v", err)
	}
	if _, err := wire.DecodeInventory(padded(wire.MaxText + 1)); err == nil || !strings.Contains(err.Error(), "bytes long") {
		t.Errorf("a byte more: %v", err)
	}
}

func TestAPlacementThatWouldBeTooLongIsNotWritten(t *testing.T) {
	p := sharing.Placement{Node: "n1"}
	for i := range 4000 {
		p.Containers = append(p.Containers, sharing.ContainerShares{Container: fmt.Sprintf("container-%054d", i), Shares: []sharing.Share{
			{Device: "GPU-a", Mode: sharing.HAMiCore, Memory: sharing.GiB},
		}})
	}
	text, err := wire.EncodePlacement(p)
	if err == nil || text != "" || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// inventoryOf is a large inventory with this many bytes in reasons beside one in each.
func inventoryOf(reasons int) sharing.Inventory {
	inv := sharing.Inventory{Node: "n1"}
	for i := range 600 {
		n := min(reasons, 511)
		reasons -= n
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-%03d", i)), Index: i, Memory: sharing.GiB, Cores: 100, MaxShares: 1,
			Mode: sharing.HAMiCore, Reason: strings.Repeat("x", 1+n),
		})
	}
	return inv
}

func TestTheLongestTextIsWrittenAndAByteMoreIsNot(t *testing.T) {
	short, err := wire.EncodeInventory(inventoryOf(0))
	if err != nil {
		t.Fatal(err)
	}
	rest := wire.MaxText - len(short)
	if text, err := wire.EncodeInventory(inventoryOf(rest)); err != nil || len(text) != wire.MaxText {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if text, err := wire.EncodeInventory(inventoryOf(rest + 1)); err == nil || text != "" {
		t.Errorf("%d bytes are written", len(text))
	}
	placement := func(names int) sharing.Placement {
		p := sharing.Placement{Node: "n1"}
		for i := range 1200 {
			n := min(names, 240)
			names -= n
			p.Containers = append(p.Containers, sharing.ContainerShares{Container: fmt.Sprintf("c%04d", i) + strings.Repeat("x", n)})
		}
		return p
	}
	if short, err = wire.EncodePlacement(placement(0)); err != nil {
		t.Fatal(err)
	}
	rest = wire.MaxText - len(short)
	if text, err := wire.EncodePlacement(placement(rest)); err != nil || len(text) != wire.MaxText {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if text, err := wire.EncodePlacement(placement(rest + 1)); err == nil || text != "" {
		t.Errorf("%d bytes are written", len(text))
	}
}

func TestLegacyTextsOfTheGreatestLengthAreLookedAt(t *testing.T) {
	const longest = wire.MaxText
	for n, long := range map[int]bool{longest: false, longest + 1: true} {
		_, err := wire.DecodeAssigned(strings.Repeat("x", n), nil, nil, 1)
		if err == nil || strings.Contains(err.Error(), "bytes long") != long {
			t.Errorf("%d bytes of what a pod was given: %v", n, err)
		}
		_, err = wire.DecodeRegister(strings.Repeat("x", n), 1)
		if err == nil || strings.Contains(err.Error(), "bytes long") != long {
			t.Errorf("%d bytes of what a node has: %v", n, err)
		}
	}
}

func TestWhatMayStandInAUUID(t *testing.T) {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
	placed := func(id string) error {
		_, err := wire.EncodePlacement(sharing.Placement{Node: "n1", Containers: []sharing.ContainerShares{{Container: "c", Shares: []sharing.Share{
			{Device: sharing.DeviceID(id), Mode: sharing.HAMiCore, Memory: sharing.GiB},
		}}}})
		return err
	}
	for c := range 128 {
		if fits := strings.Contains(allowed, string(rune(c))); (placed("GPU-"+string(rune(c))) == nil) != fits {
			t.Errorf("%q in a UUID: allowed is %v", rune(c), !fits)
		}
	}
	if err := placed(strings.Repeat("x", 128)); err != nil {
		t.Errorf("the longest: %v", err)
	}
	if placed(strings.Repeat("x", 129)) == nil || placed("") == nil {
		t.Error("one that is longer, or empty, is written")
	}
}

func TestWhatMayStandInAName(t *testing.T) {
	for name, fits := range map[string]bool{
		strings.Repeat("x", 253): true, strings.Repeat("x", 254): false, "": false,
		"\nx": false, "x\n": false, "\xff": false, "é": true, "\u0085": false,
	} {
		if _, err := wire.EncodeInventory(sharing.Inventory{Node: name}); (err == nil) != fits {
			t.Errorf("a node %q: %v", name, err)
		}
	}
}

// The position in an error is that of the piece that is wrong, in whichever container
// and device it is.
func TestMistakesInTheLegacyTextAreFound(t *testing.T) {
	containers := []wire.ContainerRef{{Name: "a", Asks: true}, {Name: "b", Asks: true}}
	const first = "GPU-a,NVIDIA,1,0:GPU-b,NVIDIA,1,0:;"
	inv := sharing.Inventory{Node: "n1", Devices: []sharing.Device{
		{ID: "GPU-a", Mode: sharing.HAMiCore}, {ID: "GPU-b", Mode: sharing.HAMiCore}, {ID: "GPU-c", Mode: sharing.MIG},
	}}
	for text, want := range map[string]string{
		first + "GPU-a,NVIDIA,x,0:":                  fmt.Sprint("byte ", len(first)),
		first + "GPU-a,NVIDIA,1,0:GPU-b,NVIDIA,y,0:": fmt.Sprint("byte ", len(first)+len("GPU-a,NVIDIA,1,0:")),
		first + "GPU-a,NVIDIA,1,0:GPU-c,NVIDIA,1,0:": fmt.Sprint("byte ", len(first)+len("GPU-a,NVIDIA,1,0:")),
		first + "GPU-a,NVIDIA,1,0:GPU-a,NVIDIA,1,0:": fmt.Sprint("byte ", len(first)+len("GPU-a,NVIDIA,1,0:")),
	} {
		_, err := wire.DecodeAssigned(text, containers, &inv, 1)
		var mistake *wire.Error
		if !errors.As(err, &mistake) || mistake.At != want {
			t.Errorf("%s: %v, want it at %s", text, err, want)
		}
	}
}

func TestTheAmountsOfTheLegacyTextHaveAGreatestOne(t *testing.T) {
	most := int64(sharing.MaxBytes / sharing.MiB)
	register := func(units, factor int64) error {
		_, err := wire.DecodeRegister(fmt.Sprintf("GPU-a,10,%d,NVIDIA-X,true,mps:", units), factor)
		return err
	}
	for _, c := range []struct {
		units, factor int64
		fits          bool
	}{{most, 1, true}, {most + 1, 1, false}, {most / 10, 10, true}, {most/10 + 1, 10, false}} {
		if err := register(c.units, c.factor); (err == nil) != c.fits {
			t.Errorf("%d units of %d: %v", c.units, c.factor, err)
		}
	}
}

func TestForeignTextIsQuotedUpToABearableLength(t *testing.T) {
	for n, cut := range map[int]bool{60: false, 61: true} {
		_, err := wire.DecodeRegister("GPU-a,10,1,NVIDIA-X,"+strings.Repeat("x", n)+",mps:", 1)
		if err == nil || strings.Contains(err.Error(), `"...`) != cut {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestTheBoundsOfPartitionsInAnInventory(t *testing.T) {
	inventory := func(edit func(p *sharing.Partitioning)) error {
		p := a100()
		edit(p)
		_, err := wire.EncodeInventory(sharing.Inventory{Node: "n1", Devices: []sharing.Device{{
			ID: "GPU-a", Mode: sharing.MIG, Memory: 80 * sharing.GiB, Cores: 100, MaxShares: 7, Healthy: true, NUMA: -1, MIG: p,
		}}})
		return err
	}
	counts := func(all ...int) func(*sharing.Partitioning) {
		return func(p *sharing.Partitioning) {
			g := sharing.Geometry{Name: "g"}
			for _, n := range all {
				g.Entries = append(g.Entries, sharing.GeometryEntry{Profile: p.Profiles[0].Name, Memory: sharing.GiB, Count: n})
			}
			p.Geometries = []sharing.Geometry{g}
		}
	}
	starts := func(all ...int) func(*sharing.Partitioning) {
		return func(p *sharing.Partitioning) { p.Profiles[0].Size, p.Profiles[0].Starts = 1, all }
	}
	for says, c := range map[string]struct {
		edit func(*sharing.Partitioning)
		fits bool
	}{
		"as many partitions as may be": {counts(1000, 24), true},
		"one more":                     {counts(1000, 25), false},
		"ascending starts":             {starts(0, 1, 7), true},
		"a start twice":                {starts(0, 1, 1), false},
		"descending starts":            {starts(1, 0), false},
		"a start beyond the last":      {starts(0, 8), false},
	} {
		if err := inventory(c.edit); (err == nil) != c.fits {
			t.Errorf("%s: %v", says, err)
		}
	}
}
