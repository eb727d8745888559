// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// TestWithheldDevicesStayListedAndTakeNoPods tries random nodes with all kinds of reasons, in every
// unit of memory.
func TestWithheldDevicesStayListedAndTakeNoPods(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, seed))
	reasons := []string{"", "NVML: Driver Not Loaded", "two\nlines", "\xff", strings.Repeat("x", 1<<20)}
	for range 2000 {
		inv, factor := randomInventory(r), pick(r, int64(0), 1, 1024)
		before, err := wire.NodeAnnotations(inv, factor)
		if err != nil {
			t.Fatal(err)
		}
		before["others"] = "stay"
		reason := pick(r, reasons...)
		after := maps.Clone(before)
		maps.Copy(after, wire.Withhold(before, reason))
		got, found, err := wire.ReadNode(after, inv.Node, factor)
		if err != nil || !found || len(got.Devices) != len(inv.Devices) {
			t.Fatalf("seed %d: %d devices were published, %d are read: %v", seed, len(inv.Devices), len(got.Devices), err)
		}
		was, _, err := wire.ReadNode(before, inv.Node, factor)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Devices {
			d, old := &got.Devices[i], was.Devices[i]
			if d.Healthy || d.Changing || d.Reason != reason && d.Reason != "" {
				t.Fatalf("seed %d: device %+v takes pods, or says %q", seed, d, d.Reason)
			}
			old.Healthy, old.Changing, old.Reason = d.Healthy, d.Changing, d.Reason
			if !reflect.DeepEqual(*d, old) {
				t.Fatalf("seed %d: device %+v was %+v", seed, d, old)
			}
		}
		register, err := wire.DecodeRegister(after[wire.NodeRegister], factor)
		if err != nil {
			t.Fatal(err)
		}
		earlier, err := wire.DecodeRegister(before[wire.NodeRegister], factor)
		if err != nil {
			t.Fatal(err)
		}
		for i := range register.Devices {
			if d := &register.Devices[i]; d.Healthy || d.Memory != earlier.Devices[i].Memory || d.Mode != earlier.Devices[i].Mode {
				t.Fatalf("seed %d: legacy schedulers read %+v, before %+v", seed, d, earlier.Devices[i])
			}
		}
		if again := wire.Withhold(after, reason); again[wire.NodeInventory] != after[wire.NodeInventory] || again[wire.NodeRegister] != after[wire.NodeRegister] {
			t.Fatalf("seed %d: to withhold twice is something else", seed)
		}
	}
}

func TestOnlyTextsThatAreThereAreWithheld(t *testing.T) {
	all, err := wire.NodeAnnotations(node1(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		have map[string]string
		want []string
	}{
		"a node without devices":  {nil, nil},
		"both":                    {all, []string{wire.NodeInventory, wire.NodeRegister}},
		"the legacy one":          {map[string]string{wire.NodeRegister: all[wire.NodeRegister]}, []string{wire.NodeRegister}},
		"unreadable ones":         {map[string]string{wire.NodeRegister: "GPU-x", wire.NodeInventory: "{"}, nil},
		"one that cannot be read": {map[string]string{wire.NodeRegister: all[wire.NodeRegister], wire.NodeInventory: "{"}, []string{wire.NodeRegister}},
	} {
		t.Run(name, func(t *testing.T) {
			got := wire.Withhold(c.have, "why")
			if len(got) != len(c.want) {
				t.Errorf("withheld %v, want %v", got, c.want)
			}
			for _, key := range c.want {
				if got[key] == "" {
					t.Errorf("%s is not withheld", key)
				}
			}
		})
	}
}

func FuzzWithhold(f *testing.F) {
	all, err := wire.NodeAnnotations(node1(), 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(all[wire.NodeInventory], all[wire.NodeRegister], "why")
	f.Add("{", "GPU-x,1,1,a,true:", "\n")
	f.Fuzz(func(t *testing.T, inventory, register, reason string) {
		for key, text := range wire.Withhold(map[string]string{wire.NodeInventory: inventory, wire.NodeRegister: register}, reason) {
			var inv sharing.Inventory
			var err error
			if key == wire.NodeInventory {
				inv, err = wire.DecodeInventory(text)
			} else {
				inv, err = wire.DecodeRegister(text, 1)
			}
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			for i := range inv.Devices {
				if inv.Devices[i].Healthy {
					t.Fatalf("%s: device %d takes pods", key, i)
				}
			}
		}
	})
}
