// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/sharingtest"
)

// parvagpu is the partitions of one set of ParvaGPU (SC'24), see
// testdata/parvagpu/README.md.
func parvagpu(t *testing.T, set int) []sharing.GeometryEntry {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("testdata/parvagpu/SLO%d.csv", set))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) < 2 || rows[0][4] != "Instance size" {
		t.Fatalf("%v, %v", rows, err)
	}
	names := map[string]string{"1": "1g.10gb", "2": "2g.20gb", "3": "3g.40gb", "4": "4g.40gb", "7": "7g.80gb"}
	var wanted []sharing.GeometryEntry
	for _, row := range rows[1:] {
		name, ok := names[row[4]]
		if !ok {
			t.Fatalf("%v: unknown size", row)
		}
		wanted = append(wanted, times(1, name))
	}
	return wanted
}

// ParvaGPU needs 2, 3, 5, 7, 13 and 16 A100s for its six sets, which is the
// optimum.
func TestTheSixSetsOfParvaGPUArePackedAtTheOptimum(t *testing.T) {
	p := sharingtest.Free(sharingtest.Device(0, "A100-80", sharing.MIG)).MIG
	for i, want := range []int{2, 3, 5, 7, 13, 16} {
		wanted := parvagpu(t, i+1)
		plan, err := mig.Pack(p, wanted)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan) != want {
			t.Errorf("set %d needs %d devices, want %d", i+1, len(plan), want)
		}
		planned(t, p, plan, wanted)
	}
}

// planned checks that a plan holds what was wanted in legal places.
func planned(t *testing.T, p *sharing.Partitioning, plan [][]sharing.Partition, wanted []sharing.GeometryEntry) {
	t.Helper()
	left := map[string]int{}
	for _, e := range wanted {
		left[e.Profile] += e.Count
	}
	for _, device := range plan {
		for i, part := range device {
			if got, ok := mig.At(p, mig.Free, part.Position); !ok || got != part {
				t.Fatalf("%+v is not the place its name says", part)
			}
			if slices.ContainsFunc(device[:i], part.Overlaps) {
				t.Fatalf("%+v overlap", device)
			}
			left[part.Profile]--
		}
	}
	for name, n := range left {
		if n != 0 {
			t.Fatalf("%d of %s are missing or too many", n, name)
		}
	}
}

func TestPack(t *testing.T) {
	a100 := sharingtest.Device(0, "A100-80", sharing.MIG)
	any, a30 := sharingtest.Free(a100).MIG, sharingtest.Free(sharingtest.Device(0, "A30", sharing.MIG)).MIG
	list := func(entries ...sharing.GeometryEntry) []sharing.GeometryEntry { return entries }
	cases := []struct {
		says   string
		p      *sharing.Partitioning
		wanted []sharing.GeometryEntry
		want   int
	}{
		{"nothing needs no device", any, nil, 0},
		{"none of something is nothing", any, list(times(0, "1g.10gb")), 0},
		{"seven small ones", any, list(times(7, "1g.10gb")), 1},
		{"eight small ones, although eight slices are there", any, list(times(8, "1g.10gb")), 2},
		{"a 4g and three small ones", any, list(times(1, "4g.40gb"), times(3, "1g.10gb")), 1},
		{"two halves leave no slice", any, list(times(2, "3g.40gb"), times(1, "1g.10gb")), 2},
		{"one with media engines for each device", any, list(times(3, "1g.10gb+me")), 3},
		{"an A30", a30, list(times(2, "2g.12gb"), times(5, "1g.6gb")), 3},
		{"whatever geometries are listed", a100.MIG, list(times(1, "3g.40gb"), times(1, "1g.10gb")), 1},
	}
	for _, c := range cases {
		t.Run(c.says, func(t *testing.T) {
			plan, err := mig.Pack(c.p, c.wanted)
			if err != nil || len(plan) != c.want {
				t.Fatalf("%d devices, %v; want %d", len(plan), err, c.want)
			}
			planned(t, c.p, plan, c.wanted)
		})
	}
	tooLarge := &sharing.Partitioning{Slices: 4, Profiles: []sharing.Profile{{Name: "7g.80gb", Size: 8, Compute: 7, Starts: []int{0}}}}
	for _, c := range []struct {
		wrong  string
		p      *sharing.Partitioning
		wanted sharing.GeometryEntry
	}{{"no such profile", any, times(1, "1g.5gb")}, {"no device can have", tooLarge, times(1, "7g.80gb")}} {
		if plan, err := mig.Pack(c.p, list(c.wanted)); err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%v: %v, %v", c.wanted, plan, err)
		}
	}
}

// Every multiset of at most four partitions of an A30 is packed by trying all.
func TestPackIsAMinimum(t *testing.T) {
	p := sharingtest.Free(sharingtest.Device(0, "A30", sharing.MIG)).MIG
	names := []string{"1g.6gb", "2g.12gb", "4g.24gb"}
	for n := range 6 * 4 * 3 {
		counts := []int{n % 6, n / 6 % 4, n / 24}
		var wanted []sharing.GeometryEntry
		for i, c := range counts {
			wanted = append(wanted, times(c, names[i]))
		}
		plan, err := mig.Pack(p, wanted)
		if err != nil {
			t.Fatal(err)
		}
		// Halves are all alike on an A30, so filling up is best.
		if want := counts[2] + (2*counts[1]+counts[0]+3)/4; len(plan) != want {
			t.Errorf("%v on %d devices, want %d", counts, len(plan), want)
		}
		planned(t, p, plan, wanted)
	}
}

func TestPackingThatTakesTooLongIsGivenUp(t *testing.T) {
	made := func(profiles, size, slices int) (p *sharing.Partitioning, wanted []sharing.GeometryEntry) {
		p = &sharing.Partitioning{Slices: slices}
		for i := range profiles {
			f := sharing.Profile{Name: fmt.Sprintf("1g.%dgb", i), Compute: 1, Size: size + i}
			for start := range slices - f.Size + 1 {
				f.Starts = append(f.Starts, start)
			}
			p.Profiles = append(p.Profiles, f)
			wanted = append(wanted, times(9, f.Name))
		}
		return p, wanted
	}
	for says, c := range map[string][3]int{"ways to fill": {6, 1, 64}, "no plan for": {10, 5, 33}} {
		p, wanted := made(c[0], c[1], c[2])
		if plan, err := mig.Pack(p, wanted); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %d devices, %v", says, len(plan), err)
		}
	}
}
